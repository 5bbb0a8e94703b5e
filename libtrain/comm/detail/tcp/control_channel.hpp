#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <libtrain/comm/detail/tcp/secure_stream.hpp>
#include <libtrain/comm/detail/tcp/socket.hpp>

namespace libtrain::detail {

/// What ranks tell each other beside the data.
struct ControlMessage {
  enum class Word : std::uint32_t {
    failure,    ///< the group is over; `text` says why
    roll_call,  ///< the deadline of call `number` has passed here: who else is in it?
    here,       ///< I am in call `number`, and wait for rank `waits_for`
    goodbye,    ///< I leave in good order
  };

  Word word = Word::goodbye;
  std::uint64_t number = 0;
  std::int32_t waits_for = -1;
  std::string text = {};
};

/// The second connection to a peer: short messages, which never block the sender.
class ControlChannel {
 public:
  ControlChannel() = default;
  explicit ControlChannel(FileDescriptor socket) : socket_(std::move(socket)) {}

  /// Encrypts and authenticates what is said from now on, on both sides. `session_secret` is that of the handshake.
  void protect(const Digest& session_secret, Cipher::Direction own);

  int descriptor() const { return socket_.get(); }

  /// Best effort: a peer that has not read thousands of messages misses this one, and all that follow where only a
  /// part of it could be sent. One thread at a time.
  void send(const ControlMessage& message) noexcept;

  /// Adds what has come to `messages`; false once the peer has closed, or sends what no peer would: `errno` is EBADMSG
  /// where that was changed in transit. One thread at a time, which may be another than the sender.
  bool receive(std::vector<ControlMessage>& messages);

 private:
  ssize_t write(const void* data, std::size_t bytes);
  ssize_t read(void* data, std::size_t bytes);
  bool take(std::vector<ControlMessage>& messages);

  FileDescriptor socket_;
  std::unique_ptr<SecureStream> stream_;  // null where nothing is encrypted
  std::string inbox_;
  bool broken_ = false;  // the last message that was sent is cut short
};

}  // namespace libtrain::detail
