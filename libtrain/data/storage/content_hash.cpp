#include <libtrain/data/storage/content_hash.hpp>

#include <charconv>

// The one source that compiles xxHash: its functions become static here, so that there is no library to link.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace libtrain::data {

namespace {

constexpr std::string_view kDigits = "0123456789abcdef";
constexpr std::size_t kHalf = 16;  // digits of 64 bits

std::uint64_t parse_half(std::string_view digits) {
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

}  // namespace

std::string to_string(const ContentHash& hash) {
  std::string digits(2 * kHalf, '0');
  for (std::size_t i = 0; i < kHalf; ++i) {
    const std::size_t shift = 60 - 4 * i;
    digits[i] = kDigits[(hash.high >> shift) & 0xf];
    digits[kHalf + i] = kDigits[(hash.low >> shift) & 0xf];
  }
  return digits;
}

std::optional<ContentHash> parse_content_hash(std::string_view digits) {
  if (digits.size() != 2 * kHalf) return std::nullopt;
  if (digits.find_first_not_of(kDigits) != std::string_view::npos) return std::nullopt;
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
