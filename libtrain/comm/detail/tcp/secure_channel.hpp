#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/comm/detail/tcp/cipher.hpp>

namespace libtrain::detail {

/// Messages between two sides that share the secret of a handshake, encrypted and authenticated. No call blocks. One
/// thread at a time.
class SecureChannel {
 public:
  using Side = Cipher::Direction;

  /// `max_bytes` limits the messages that are received.
  SecureChannel(FileDescriptor socket, const Digest& session_secret, Side own, std::uint32_t max_bytes);

  int descriptor() const { return socket_.get(); }

  /// The events to poll for.
  short events() const;

  /// Queues a message.
  void send(const std::string& message);

  /// Sends and receives as much as possible without waiting.
  void advance();

  /// Whether the system has taken every queued message.
  bool is_sent() const { return outbox_.empty(); }

  /// The next message that was received, even if the other side has closed the connection since.
  std::optional<std::string> take();

  /// Why the channel has failed: the other side has closed the connection, or sent data that is not authentic. Empty
  /// while it works.
  const std::string& reason() const { return reason_; }

 private:
  bool is_full() const;
  void fail(std::string reason) { reason_ = std::move(reason); }

  FileDescriptor socket_;
  Cipher sealer_;
  Cipher opener_;
  std::uint32_t max_bytes_;
  std::string outbox_;
  std::string inbox_;
  std::string reason_;
};

}  // namespace libtrain::detail
