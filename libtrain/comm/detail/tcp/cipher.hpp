#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <libtrain/comm/detail/tcp/secret.hpp>

struct evp_cipher_ctx_st;

namespace libtrain::detail {

/// Encrypts and authenticates what goes one way over one connection: AES-256-GCM (NIST SP 800-38D). The n-th piece can
/// only be opened as the n-th, so that nothing is left out, repeated or moved. One thread at a time.
class Cipher {
 public:
  using Tag = std::array<unsigned char, 16>;
  enum class Direction : std::uint32_t { from_caller, from_answerer };
  static constexpr Direction opposite(Direction direction) {
    return direction == Direction::from_caller ? Direction::from_answerer : Direction::from_caller;
  }

  /// What is sent sealed is its length, then the ciphertext, then the tag. The length is not secret, and one that was
  /// changed makes the tag wrong.
  static constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);
  static constexpr std::size_t kTagBytes = sizeof(Tag);

  /// `key` is that of this connection alone.
  Cipher(const Digest& key, Direction direction);
  ~Cipher();
  Cipher(Cipher&&) noexcept;
  Cipher& operator=(Cipher&&) noexcept;

  /// Encrypts `bytes` bytes, at most 2^31 - 1, from `plain` to `sealed`, which may be the same memory.
  Tag seal(const void* plain, void* sealed, std::size_t bytes);

  /// The reverse; false where the piece is not what the other side has sealed. `plain` is to be ignored then.
  bool open(const void* sealed, void* plain, std::size_t bytes, const Tag& tag);

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };

  std::array<unsigned char, 12> next_nonce();

  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
  Digest key_;
  Direction direction_;
  std::uint64_t pieces_ = 0;
};

}  // namespace libtrain::detail
