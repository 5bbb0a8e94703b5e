#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/comm/detail/tcp/secure_stream.hpp>

namespace libtrain::detail {

/// A message between ranks beside the data.
struct ControlMessage {
  enum class Word : std::uint32_t {
    failure,         ///< the group has failed; `text` is the reason
    liveness_check,  ///< the deadline of call `number` has passed: ranks that are in it answer with `here`
    here,            ///< the sender is in call `number` and waits for rank `waits_for`
    goodbye,         ///< the sender destroys its communicator
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
  explicit ControlChannel(PeerConnection connection) : connection_(std::move(connection)) {}

  int descriptor() const { return connection_.socket.get(); }

  /// Best effort: a peer that has not read thousands of messages misses this one, and all later ones if only a part of
  /// it could be sent. One thread at a time.
  void send(const ControlMessage& message) noexcept;

  /// Adds the messages that have arrived to `messages`; false once the peer has closed the connection or sent an
  /// invalid message. errno is EBADMSG if it was modified in transit. One thread at a time, which may differ from the
  /// sending one.
  bool receive(std::vector<ControlMessage>& messages);

 private:
  bool take(std::vector<ControlMessage>& messages);

  PeerConnection connection_;
  std::string inbox_;
  bool broken_ = false;  // only a part of the last message was sent
};

}  // namespace libtrain::detail
