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

/// A 128-bit hash of files and names: XXH3-128 of Y. Collet's xxHash (github.com/Cyan4973/xxHash). It detects damage,
/// not forgery.
struct ContentHash {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  bool operator==(const ContentHash&) const = default;
};

/// 32 lower-case hexadecimal digits, as xxhsum -H128 prints them.
std::string to_string(const ContentHash& hash);

/// The inverse of to_string(); std::nullopt for any other text.
std::optional<ContentHash> parse_content_hash(std::string_view digits);

/// Computes the hash of bytes that arrive in pieces. One thread at a time.
class ContentHasher {
 public:
  ContentHasher();
  ContentHasher(ContentHasher&& other) noexcept;
  ContentHasher& operator=(ContentHasher&& other) noexcept;
  ~ContentHasher();

  void update(std::span<const std::byte> bytes);
  void update(std::string_view bytes) { update(std::as_bytes(std::span{bytes.data(), bytes.size()})); }

  /// The hash of all bytes so far; more may follow.
  ContentHash digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The hash of `bytes`.
ContentHash content_hash(std::span<const std::byte> bytes);
inline ContentHash content_hash(std::string_view bytes) {
  return content_hash(std::as_bytes(std::span{bytes.data(), bytes.size()}));
}

}  // namespace libtrain::data

template <>
struct std::hash<libtrain::data::ContentHash> {
  std::size_t operator()(const libtrain::data::ContentHash& hash) const noexcept {
    return static_cast<std::size_t>(hash.low);
  }
};
