#include <libtrain/comm/detail/tcp/control_channel.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <string>

namespace libtrain::detail {

namespace {

constexpr std::size_t kMaxTextLength = 4096;

struct Header {
  ControlMessage::Word word{};
  std::int32_t waits_for = -1;
  std::uint64_t number = 0;
  std::uint64_t length = 0;
};
static_assert(sizeof(Header) == 24);

}  // namespace

void ControlChannel::send(const ControlMessage& message) noexcept try {
  if (broken_) return;
  const Header header{.word = message.word,
                      .waits_for = message.waits_for,
                      .number = message.number,
                      .length = std::min(message.text.size(), kMaxTextLength)};
  std::string whole{reinterpret_cast<const char*>(&header), sizeof(header)};
  whole.append(message.text, 0, header.length);
  const auto sent = connection_.send(whole.data(), whole.size());
  // After a partial message, the peer would read the next one as its rest. An encrypted record that was not sent leaves
  // a gap in the numbers of the records.
  broken_ = connection_.stream ? sent < 0 : sent > 0 && static_cast<std::size_t>(sent) < whole.size();
} catch (const std::exception&) {
  broken_ = true;
}

bool ControlChannel::receive(std::vector<ControlMessage>& messages) {
  std::array<char, 4096> buffer;
  while (true) {
    const auto got = connection_.receive(buffer.data(), buffer.size());
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
    if (header.word > ControlMessage::Word::goodbye || header.length > kMaxTextLength) return false;
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
