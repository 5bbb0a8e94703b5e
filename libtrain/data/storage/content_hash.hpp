#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace libtrain::data {

/// 128 bits by which files and names are told apart: XXH3-128 of Y. Collet's xxHash (github.com/Cyan4973/xxHash). It
/// finds damage, not forgery.
struct ContentHash {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  bool operator==(const ContentHash&) const = default;
};

/// 32 lower-case hexadecimal digits, as xxhsum -H128 prints them.
std::string to_string(const ContentHash& hash);

/// What to_string() made; nothing for any other text.
std::optional<ContentHash> parse_content_hash(std::string_view digits);

/// The hash of bytes that come piece by piece. One thread at a time.
class ContentHasher {
 public:
  ContentHasher();
  ContentHasher(ContentHasher&& other) noexcept;
  ContentHasher& operator=(ContentHasher&& other) noexcept;
  ~ContentHasher();

  void update(std::span<const std::byte> bytes);
  void update(std::string_view bytes) { update(std::as_bytes(std::span{bytes.data(), bytes.size()})); }

  /// Of all bytes so far; more may follow.
  ContentHash digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The hash of bytes that are all there.
ContentHash content_hash(std::span<const std::byte> bytes);

}  // namespace libtrain::data

template <>
struct std::hash<libtrain::data::ContentHash> {
  std::size_t operator()(const libtrain::data::ContentHash& hash) const noexcept {
    return static_cast<std::size_t>(hash.low);
  }
};
