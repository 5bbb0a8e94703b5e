#include <libtrain/data/formats/tar_writer.hpp>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/formats/pax.hpp>
#include <libtrain/data/formats/tar.hpp>

#include <tests/data/formats/tar_bytes.hpp>
#include <tests/data/memory_file.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using libtrain::test::read_file;
using libtrain::test::TemporaryFolder;
using ::testing::HasSubstr;

using Members = std::vector<std::pair<std::string, std::string>>;

std::string written(const Members& members) {
  const TemporaryFolder folder;
  TarWriter writer(folder / "a.tar");
  for (const auto& [name, data] : members) writer.add(name, data);
  EXPECT_EQ(writer.size(), members.size());
  writer.finish();
  const std::string bytes = read_file(folder / "a.tar");
  EXPECT_EQ(writer.bytes(), bytes.size());
  return bytes;
}

Members read_back(const std::string& bytes) {
  const TarFile file(memory_file(bytes));
  Members members;
  for (std::uint64_t i = 0; i < file.size(); ++i) {
    std::string data;
    file.read(i, data);
    members.emplace_back(file.member_name(i), data);
  }
  return members;
}

// The table of POSIX.1, field by field.
TEST(TarWriter, WritesTheHeaderOfPosix) {
  const std::string bytes = written({{"folder/a.jpg", "hello"}});
  ASSERT_EQ(bytes.size(), 512U + 512U + 1024U);
  const auto field = [&](std::size_t begin, std::size_t count) { return bytes.substr(begin, count); };
  const std::string zero(1, '\0');
  EXPECT_EQ(field(0, 100), "folder/a.jpg" + std::string(88, '\0'));
  EXPECT_EQ(field(100, 8), "0000644" + zero);
  EXPECT_EQ(field(108, 8), "0000000" + zero);
  EXPECT_EQ(field(116, 8), "0000000" + zero);
  EXPECT_EQ(field(124, 12), "00000000005" + zero);
  EXPECT_EQ(field(136, 12), "00000000000" + zero);
  EXPECT_EQ(field(156, 1), "0");
  EXPECT_EQ(field(157, 100), std::string(100, '\0'));
  EXPECT_EQ(field(257, 8), "ustar" + zero + "00");
  EXPECT_EQ(field(265, 64), std::string(64, '\0'));
  EXPECT_EQ(field(329, 16), "0000000" + zero + "0000000" + zero);
  EXPECT_EQ(field(345, 167), std::string(167, '\0'));
  std::string resealed = bytes;
  set_tar_checksum(resealed, 0);
  EXPECT_EQ(bytes, resealed);
  EXPECT_EQ(field(512, 512), "hello" + std::string(507, '\0'));
  EXPECT_EQ(field(1024, 1024), std::string(1024, '\0'));
}

TEST(TarWriter, PartsNamesThatFitUstarAndExtendsTheOthers) {
  const std::string longest = std::string(155, 'p') + "/" + std::string(100, 'n');
  EXPECT_EQ(written({{longest, ""}}).size(), 512U + 1024U);
  EXPECT_EQ(written({{std::string(100, 'n'), ""}}).size(), 512U + 1024U);
  const std::string extended[] = {std::string(101, 'n'),
                                  "/" + std::string(100, 'n'),
                                  std::string(156, 'p') + "/" + std::string(100, 'n'),
                                  std::string(155, 'p') + "/" + std::string(101, 'n'),
                                  "caf\xc3\xa9",
                                  std::string(4096, 'n')};
  for (const auto& name : extended) {
    const std::string bytes = written({{name, "x"}});
    EXPECT_EQ(bytes[156], 'x');
    EXPECT_EQ(bytes.substr(512, pax_line("path", name).size()), pax_line("path", name));
    EXPECT_EQ(read_back(bytes), (Members{{name, "x"}}));
  }
}

TEST(TarWriter, RandomArchivesReadBackEqual) {
  std::mt19937 random(23);
  for (int round = 0; round < 20; ++round) {
    Members members;
    for (int i = 0; i < 30; ++i) {
      std::string name;
      const std::size_t length = 1 + random() % 300;
      while (name.size() < length) name += std::string(1 + random() % 80, 'x') + "/";
      name += std::to_string(i);
      members.emplace_back(name, std::string(random() % 2000, static_cast<char>(random() & 0xff)));
    }
    EXPECT_EQ(read_back(written(members)), members);
  }
}

TEST(TarWriter, LeavesNothingUnlessItIsFinished) {
  const TemporaryFolder folder;
  {
    TarWriter writer(folder / "a.tar");
    writer.add("a", "x");
  }
  EXPECT_EQ(folder.count(), 0);
}

TEST(TarWriter, RefusesNamesThatAreNone) {
  const TemporaryFolder folder;
  TarWriter writer(folder / "a.tar");
  const std::string wrong[] = {"", "folder/", std::string("a\0b", 3), std::string(4097, 'n')};
  for (const auto& name : wrong) {
    EXPECT_THAT(message_of<UsageError>([&] { writer.add(name, "x"); }), HasSubstr("cannot be the name of a member"));
  }
  EXPECT_EQ(writer.size(), 0U);
}

TEST(TarWriter, RefusesToGoOnAfterTheEnd) {
  const TemporaryFolder folder;
  TarWriter writer(folder / "a.tar");
  writer.finish();
  EXPECT_THROW(writer.add("a", "x"), UsageError);
  EXPECT_THROW(writer.finish(), UsageError);
}

// At 9, 98 and 997 bytes the length takes one digit more than without it.
TEST(PaxRecord, CountsItsOwnDigits) {
  for (std::size_t length = 0; length < 1100; ++length) {
    const std::string value(length, 'v');
    ASSERT_EQ(detail::pax_record("path", value), pax_line("path", value)) << length;
  }
  EXPECT_EQ(detail::pax_record("path", "x"), "9 path=x\n");
  EXPECT_EQ(detail::pax_record("path", "xy"), "11 path=xy\n");
}

}  // namespace
}  // namespace libtrain::data
