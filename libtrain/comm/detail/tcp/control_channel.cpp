#include <libtrain/comm/detail/tcp/control_channel.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <string>

namespace libtrain::detail {

namespace {

constexpr std::size_t kLongestText = 4096;

struct Header {
  ControlMessage::Word word{};
  std::int32_t waits_for = -1;
  std::uint64_t number = 0;
  std::uint64_t length = 0;
};
static_assert(sizeof(Header) == 24);

}  // namespace

void ControlChannel::protect(const Digest& session_secret, Cipher::Direction own) {
  stream_ = std::make_unique<SecureStream>(session_secret, own);
}

void ControlChannel::send(const ControlMessage& message) noexcept try {
  if (broken_) return;
  const Header header{.word = message.word,
                      .waits_for = message.waits_for,
                      .number = message.number,
                      .length = std::min(message.text.size(), kLongestText)};
  std::string whole{reinterpret_cast<const char*>(&header), sizeof(header)};
  whole.append(message.text, 0, header.length);
  const auto sent = write(whole.data(), whole.size());
  // The peer would take the beginning of the next message for the rest of this one. A record that is encrypted has its
  // number whether or not it was sent.
  broken_ = stream_ ? sent < 0 : sent > 0 && static_cast<std::size_t>(sent) < whole.size();
} catch (const std::exception&) {
  broken_ = true;
}

ssize_t ControlChannel::write(const void* data, std::size_t bytes) {
  if (stream_) return stream_->send(socket_.get(), data, bytes);
  return ::send(socket_.get(), data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t ControlChannel::read(void* data, std::size_t bytes) {
  if (stream_) return stream_->receive(socket_.get(), data, bytes);
  return recv(socket_.get(), data, bytes, MSG_DONTWAIT);
}

bool ControlChannel::receive(std::vector<ControlMessage>& messages) {
  std::array<char, 4096> buffer;
  while (true) {
    const auto got = read(buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got == 0) errno = 0;
    if (got <= 0) return false;
    inbox_.append(buffer.data(), static_cast<std::size_t>(got));
    if (!take(messages)) return false;
  }
}

bool ControlChannel::take(std::vector<ControlMessage>& messages) {
  while (inbox_.size() >= sizeof(Header)) {
    Header header;
    std::memcpy(&header, inbox_.data(), sizeof(header));
    if (header.word > ControlMessage::Word::goodbye || header.length > kLongestText) return false;
    if (inbox_.size() < sizeof(header) + header.length) return true;
    messages.push_back({.word = header.word,
                        .number = header.number,
                        .waits_for = header.waits_for,
                        .text = inbox_.substr(sizeof(header), header.length)});
    inbox_.erase(0, sizeof(header) + header.length);
  }
  return true;
}

}  // namespace libtrain::detail
