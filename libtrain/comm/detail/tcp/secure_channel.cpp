#include <libtrain/comm/detail/tcp/secure_channel.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <libtrain/comm/detail/tcp/socket.hpp>

namespace libtrain::detail {

SecureChannel::SecureChannel(FileDescriptor socket, const Digest& session_secret, Side own, std::uint32_t max_bytes)
    : socket_(std::move(socket)),
      sealer_(session_secret, own),
      opener_(session_secret, Cipher::opposite(own)),
      max_bytes_(max_bytes) {}

short SecureChannel::events() const {
  return static_cast<short>((is_full() ? 0 : POLLIN) | (outbox_.empty() ? 0 : POLLOUT));
}

void SecureChannel::send(const std::string& message) {
  sealer_.seal_record(message.data(), message.size(), outbox_);
}

void SecureChannel::advance() {
  if (!reason_.empty()) return;
  if (!send_queued(socket_.get(), outbox_)) return fail(std::strerror(errno));
  std::array<char, 16384> buffer{};
  while (!is_full()) {
    const auto got = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return fail(got == 0 ? "it closed the connection" : std::strerror(errno));
    inbox_.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

std::optional<std::string> SecureChannel::take() {
  if (inbox_.size() < Cipher::kLengthBytes) return std::nullopt;
  const auto length = Cipher::length_of(inbox_.data());
  if (length > max_bytes_) {
    inbox_.clear();
    fail("it sent a message that is too long");
    return std::nullopt;
  }
  if (inbox_.size() < Cipher::record_bytes(length)) return std::nullopt;
  if (!opener_.open_record(inbox_.data())) {
    inbox_.clear();
    fail("its message was modified in transit");
    return std::nullopt;
  }
  auto message = inbox_.substr(Cipher::kLengthBytes, length);
  inbox_.erase(0, Cipher::record_bytes(length));
  return message;
}

// The inbox holds at most one message of the maximum size, and what else one read returns.
bool SecureChannel::is_full() const {
  return inbox_.size() >= Cipher::record_bytes(max_bytes_);
}

}  // namespace libtrain::detail
