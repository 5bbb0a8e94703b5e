#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <libtrain/comm/detail/tcp/secret.hpp>

struct evp_cipher_ctx_st;

namespace libtrain::detail {

/// Encrypts and authenticates one direction of one connection: AES-256-GCM (NIST SP 800-38D). The n-th piece can only
/// be opened as the n-th, so that no piece can be omitted, repeated or moved. One thread at a time.
class Cipher {
 public:
  using Tag = std::array<unsigned char, 16>;
  enum class Direction : std::uint32_t { from_caller, from_answerer };
  static constexpr Direction opposite(Direction direction) {
    return direction == Direction::from_caller ? Direction::from_answerer : Direction::from_caller;
  }

  /// `key` belongs to this connection alone.
  Cipher(const Digest& key, Direction direction);

  /// Encrypts `bytes` bytes, at most 2^31 - 1, from `plain` to `sealed`, which may be the same memory.
  Tag seal(const void* plain, void* sealed, std::size_t bytes);

  /// The reverse; false if the piece is not the one that the other side sealed. The caller must then ignore `plain`.
  bool open(const void* sealed, void* plain, std::size_t bytes, const Tag& tag);

  /// On the connection, a piece is a record: its length, the ciphertext, and the tag. The length is not secret; if it
  /// is modified, the tag does not match.
  static constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);
  static constexpr std::size_t record_bytes(std::size_t plain_bytes) {
    return kLengthBytes + plain_bytes + sizeof(Tag);
  }

  /// Seals `bytes` bytes and appends their record to `records`.
  void seal_record(const void* plain, std::size_t bytes, std::string& records);

  /// The length that the first kLengthBytes bytes of a record claim. Check it before you read the rest.
  static std::uint32_t length_of(const char* record);

  /// Opens a complete record in place: the plain bytes follow its length. False as for open().
  bool open_record(char* record);

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
