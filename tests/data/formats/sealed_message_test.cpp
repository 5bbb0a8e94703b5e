#include <libtrain/data/formats/detail/sealed_message.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/formats/hex_bytes.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data::detail {
namespace {

using libtrain::test::message_of;
using libtrain::test::read_file;
using libtrain::test::TemporaryFolder;
using libtrain::test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kFormat = "fruit001";

// Field 1 is a string of 6 bytes; the checksum was computed in Python, from the definition.
std::string message() {
  return from_hex("0a06") + "cherry";
}
std::string sealed() {
  return "fruit001" + from_hex("4e6d612d") + message();
}

class Sealed : public ::testing::Test {
 protected:
  std::optional<detail::SealedMessage> read(std::uint64_t limit_bytes = 1000) const {
    return detail::SealedMessage::read(path_, kFormat, limit_bytes);
  }

  std::string refusal(const std::string& bytes) const {
    write_file(path_, bytes);
    return message_of<EnvironmentError>([&] { read(); });
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "fruit";
};

TEST_F(Sealed, HasItsBytesSpeltOut) {
  detail::write_sealed_message(folder_ / "new/fruit", kFormat, message());
  EXPECT_EQ(read_file(folder_ / "new/fruit"), sealed());
}

TEST_F(Sealed, IsReadFromItsBytes) {
  write_file(path_, sealed());
  const auto found = read();
  ASSERT_TRUE(found);
  detail::WireReader reader = found->reader();
  const auto field = reader.next();
  ASSERT_TRUE(field);
  EXPECT_EQ(field->number, 1U);
  EXPECT_EQ(field->bytes, "cherry");
  EXPECT_TRUE(reader.at_end());
}

TEST_F(Sealed, IsAbsentWithoutAFile) {
  EXPECT_FALSE(read());
}

// A link to itself: whether there is a file cannot be told.
TEST_F(Sealed, ThatCannotBeLookedForIsNotAbsent) {
  std::filesystem::create_symlink(path_, path_);
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(); }), HasSubstr(path_));
}

// The checksum of nothing is 0.
TEST_F(Sealed, MayHoldNothing) {
  detail::write_sealed_message(path_, kFormat, "");
  EXPECT_EQ(read_file(path_), "fruit001" + std::string(4, '\0'));
  const auto found = read();
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->reader().at_end());
}

TEST_F(Sealed, WithAnyBitFlippedIsRefused) {
  for (std::size_t place = 0; place < sealed().size(); ++place) {
    const char* const offset =
        place < 8 ? "byte offset 0: expected 'fruit001'" : "byte offset 8: expected the checksum";
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = sealed();
      damaged[place] = static_cast<char>(damaged[place] ^ (1 << bit));
      EXPECT_THAT(refusal(damaged), AllOf(HasSubstr(path_), HasSubstr(offset))) << place << " " << bit;
    }
  }
}

TEST_F(Sealed, CutShortIsRefused) {
  for (std::size_t length = 0; length < sealed().size(); ++length) {
    EXPECT_THAT(refusal(sealed().substr(0, length)), HasSubstr(path_)) << length;
  }
}

TEST_F(Sealed, LongerThanAllowedIsRefused) {
  write_file(path_, sealed());
  EXPECT_TRUE(read(20));
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(19); }), AllOf(HasSubstr(path_), HasSubstr("at most 19")));
}

}  // namespace
}  // namespace libtrain::data::detail
