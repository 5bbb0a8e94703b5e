#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/comm/detail/tcp/cipher.hpp>

namespace libtrain::detail {

/// Messages between two sides that share the secret of a handshake, encrypted and authenticated, in steps that never
/// block. One thread at a time.
class SecureChannel {
 public:
  using Side = Cipher::Direction;

  /// `largest` bounds the messages that are received, in bytes.
  SecureChannel(FileDescriptor socket, const Digest& session_secret, Side own, std::uint32_t largest);

  int descriptor() const { return socket_.get(); }

  /// What to poll for.
  short events() const;

  /// Queues a message.
  void send(const std::string& message);

  /// Sends and receives as far as it can without waiting. False once the other side has closed the connection or has
  /// sent what is not authentic: `trouble` says which.
  bool advance();

  /// Whether everything queued has left for the system.
  bool is_sent() const { return outbox_.empty(); }

  /// The next message that has come, also where the other side has closed the connection after it.
  std::optional<std::string> take();

  const std::string& trouble() const { return trouble_; }

 private:
  bool flush();
  bool fill();
  bool is_full() const;
  bool fail(std::string trouble);

  FileDescriptor socket_;
  Cipher sealer_;
  Cipher opener_;
  std::uint32_t largest_;
  std::string outbox_;
  std::string inbox_;
  std::string trouble_;
};

}  // namespace libtrain::detail
