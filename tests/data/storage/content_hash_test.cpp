#include <libtrain/data/storage/content_hash.hpp>

#include <span>
#include <string>

#include <gtest/gtest.h>

namespace libtrain::data {
namespace {

// The bytes 0, 1, ..., 250, 0, 1, ...
std::string counting(std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(static_cast<unsigned char>(i % 251));
  return bytes;
}

ContentHash hash(const std::string& bytes) {
  return content_hash(std::as_bytes(std::span{bytes.data(), bytes.size()}));
}

// Made with XXH3_128bits of Debian's libxxhash.so 0.8.1, called through Python's ctypes.
TEST(ContentHash, IsXxh3OfTheLibrary) {
  EXPECT_EQ(to_string(hash("")), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(to_string(hash("a")), "a96faf705af16834e6c632b61e964e1f");
  EXPECT_EQ(to_string(hash("libtrain")), "48911bc5ba2858a4685f046342dfc2d1");
  EXPECT_EQ(to_string(hash(counting(1000))), "18bf41bc8229e27733ef703fb2b20ed1");
}

TEST(ContentHash, IsTheSameOfBytesThatComeInPieces) {
  const auto bytes = counting(1000);
  for (const std::size_t piece : {1, 7, 256, 999, 1000}) {
    ContentHasher hasher;
    for (std::size_t at = 0; at < bytes.size(); at += piece) hasher.update(std::string_view(bytes).substr(at, piece));
    EXPECT_EQ(to_string(hasher.digest()), "18bf41bc8229e27733ef703fb2b20ed1") << piece;
  }
  EXPECT_EQ(to_string(ContentHasher().digest()), "99aa06d3014798d86001c324468d497f");
}

TEST(ContentHash, IsReadBackFromItsDigits) {
  const ContentHash wanted{.high = 0x0123456789abcdef, .low = 0xfedcba9876543210};
  EXPECT_EQ(to_string(wanted), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(parse_content_hash("0123456789abcdeffedcba9876543210"), wanted);
  for (const char* text : {"", "0123456789abcdeffedcba987654321", "0123456789abcdeffedcba98765432100",
                           "0123456789ABCDEFfedcba9876543210", "0123456789abcdeffedcba987654321.", "usage"}) {
    EXPECT_EQ(parse_content_hash(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace libtrain::data
