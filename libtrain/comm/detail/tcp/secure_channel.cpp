#include <libtrain/comm/detail/tcp/secure_channel.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <libtrain/base/error.hpp>

namespace libtrain::detail {

SecureChannel::SecureChannel(FileDescriptor socket, const Digest& session_secret, Side own, std::uint32_t largest)
    : socket_(std::move(socket)),
      sealer_(session_secret, own),
      opener_(session_secret, Cipher::opposite(own)),
      largest_(largest) {}

short SecureChannel::events() const {
  return static_cast<short>((is_full() ? 0 : POLLIN) | (outbox_.empty() ? 0 : POLLOUT));
}

void SecureChannel::send(const std::string& message) {
  const auto length = static_cast<std::uint32_t>(message.size());
  std::string sealed(message.size(), '\0');
  const auto tag = sealer_.seal(message.data(), sealed.data(), message.size());
  outbox_.append(reinterpret_cast<const char*>(&length), Cipher::kLengthBytes);
  outbox_ += sealed;
  outbox_.append(reinterpret_cast<const char*>(tag.data()), tag.size());
}

bool SecureChannel::advance() {
  return trouble_.empty() && flush() && fill();
}

bool SecureChannel::flush() {
  std::size_t done = 0;
  while (done < outbox_.size()) {
    const auto sent = ::send(socket_.get(), outbox_.data() + done, outbox_.size() - done, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    if (sent < 0) return fail(std::strerror(errno));
    done += static_cast<std::size_t>(sent);
  }
  outbox_.erase(0, done);
  return true;
}

bool SecureChannel::fill() {
  std::array<char, 16384> buffer{};
  while (!is_full()) {
    const auto got = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got < 0) return fail(std::strerror(errno));
    if (got == 0) return fail("it closed the connection");
    inbox_.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return true;
}

std::optional<std::string> SecureChannel::take() {
  std::uint32_t length = 0;
  if (inbox_.size() < Cipher::kLengthBytes) return std::nullopt;
  std::memcpy(&length, inbox_.data(), Cipher::kLengthBytes);
  if (length > largest_) {
    inbox_.clear();
    fail("it sends more than a rank would");
    return std::nullopt;
  }
  if (inbox_.size() < Cipher::kLengthBytes + length + Cipher::kTagBytes) return std::nullopt;
  std::string message(length, '\0');
  Cipher::Tag tag{};
  std::memcpy(tag.data(), inbox_.data() + Cipher::kLengthBytes + length, Cipher::kTagBytes);
  if (!opener_.open(inbox_.data() + Cipher::kLengthBytes, message.data(), length, tag)) {
    inbox_.clear();
    fail("its message was changed in transit");
    return std::nullopt;
  }
  inbox_.erase(0, Cipher::kLengthBytes + length + Cipher::kTagBytes);
  return message;
}

// No more than one message of the largest size is kept.
bool SecureChannel::is_full() const {
  return inbox_.size() >= Cipher::kLengthBytes + largest_ + Cipher::kTagBytes;
}

bool SecureChannel::fail(std::string trouble) {
  trouble_ = std::move(trouble);
  return false;
}

}  // namespace libtrain::detail
