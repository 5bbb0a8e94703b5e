#include <libtrain/comm/tcp/control_channel.hpp>

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

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

void ControlChannel::send(const ControlMessage& message) noexcept {
  if (broken_) return;
  Header header{.word = message.word,
                .waits_for = message.waits_for,
                .number = message.number,
                .length = std::min(message.text.size(), kLongestText)};
  std::array<iovec, 2> parts{{{.iov_base = &header, .iov_len = sizeof(header)},
                              {.iov_base = const_cast<char*>(message.text.data()), .iov_len = header.length}}};
  msghdr whole{};
  whole.msg_iov = parts.data();
  whole.msg_iovlen = parts.size();
  const auto sent = sendmsg(socket_.get(), &whole, MSG_DONTWAIT | MSG_NOSIGNAL);
  // The peer would take the beginning of the next message for the rest of this one.
  broken_ = sent > 0 && static_cast<std::size_t>(sent) < sizeof(header) + header.length;
}

bool ControlChannel::receive(std::vector<ControlMessage>& messages) {
  std::array<char, 4096> buffer;
  while (true) {
    const auto got = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
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
