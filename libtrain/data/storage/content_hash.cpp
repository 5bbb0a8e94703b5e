#include <libtrain/data/storage/content_hash.hpp>

#include <charconv>

#include <libtrain/base/detail/digits.hpp>

// The only source that compiles xxHash: its functions are static, so that no library is linked.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace libtrain::data {

namespace {

constexpr int kHalf = 16;  // digits of 64 bits

std::uint64_t parse_half(std::string_view digits) {
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

}  // namespace

std::string to_string(const ContentHash& hash) {
  const auto half = [](std::uint64_t value) { return libtrain::detail::hexadecimal(value, kHalf).substr(2); };
  return half(hash.high) + half(hash.low);
}

std::optional<ContentHash> parse_content_hash(std::string_view digits) {
  if (digits.size() != 2 * kHalf) return std::nullopt;
  if (digits.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  return ContentHash{.high = parse_half(digits.substr(0, kHalf)), .low = parse_half(digits.substr(kHalf))};
}

struct ContentHasher::State {
  XXH3_state_t xxh3;
};

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh3);
}

ContentHasher::ContentHasher(ContentHasher&& other) noexcept = default;
ContentHasher& ContentHasher::operator=(ContentHasher&& other) noexcept = default;
ContentHasher::~ContentHasher() = default;

void ContentHasher::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

ContentHash ContentHasher::digest() const {
  const auto hash = XXH3_128bits_digest(&state_->xxh3);
  return {.high = hash.high64, .low = hash.low64};
}

ContentHash content_hash(std::span<const std::byte> bytes) {
  const auto hash = XXH3_128bits(bytes.data(), bytes.size());
  return {.high = hash.high64, .low = hash.low64};
}

}  // namespace libtrain::data
