#include <libtrain/data/storage/cache_entry.hpp>

#include <array>
#include <limits>
#include <span>
#include <string_view>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace detail {

namespace {

using Trailer = std::array<std::uint64_t, 8>;
static_assert(sizeof(Trailer) == kTrailerBytes);

constexpr std::uint64_t kTrailerMagic = 0x31656863'61637274;  // "trcache1" on a little-endian machine

Trailer trailer_of(const CacheKey& key, const ContentHash& content) {
  Trailer trailer{kTrailerMagic, key.hash.high, key.hash.low, key.size, content.high, content.low, 0, 0};
  const auto check = content_hash(std::as_bytes(std::span{trailer}.first(6)));
  trailer[6] = check.high;
  trailer[7] = check.low;
  return trailer;
}

}  // namespace

std::uint64_t entry_bytes(std::uint64_t size) {
  if (size > std::numeric_limits<std::uint64_t>::max() - kTrailerBytes) return disk_bytes(size);
  return disk_bytes(size + kTrailerBytes);
}

int write_trailer(const DiskFile& entry, const CacheKey& key, const ContentHash& content) {
  const Trailer trailer = trailer_of(key, content);
  return entry.write(key.size, std::as_bytes(std::span{trailer}));
}

std::string find_wrong_length(const DiskFile& entry, const CacheKey& key) {
  const auto found = entry.size();
  const auto expected = key.size + kTrailerBytes;
  return found == expected ? std::string{} : text("it has ", found, " bytes instead of ", expected);
}

std::string find_damage(const DiskFile& entry, const CacheKey& key) {
  if (auto wrong_length = find_wrong_length(entry, key); !wrong_length.empty()) return wrong_length;
  Trailer found{};
  if (entry.read(key.size, std::as_writable_bytes(std::span{found})) != kTrailerBytes) return "it cannot be read";
  const ContentHash content{.high = found[4], .low = found[5]};
  if (found != trailer_of(key, content)) return "its trailer is damaged";
  const auto actual = hash_of_beginning(entry, key.size);
  if (!actual) return "it cannot be read";
  if (*actual == content) return {};
  return text("its content has the hash ", to_string(*actual), " instead of ", to_string(content));
}

}  // namespace detail

}  // namespace libtrain::data
