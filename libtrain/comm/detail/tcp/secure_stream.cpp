#include <libtrain/comm/detail/tcp/secure_stream.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace libtrain::detail {

namespace {

// The plain bytes of a record.
constexpr std::size_t kLargest = std::size_t{64} << 10;

}  // namespace

SecureStream::SecureStream(const Digest& session_secret, Cipher::Direction own)
    : sealer_(session_secret, own), opener_(session_secret, Cipher::opposite(own)) {
  inbox_.resize(Cipher::kLengthBytes + kLargest + Cipher::kTagBytes);
}

ssize_t SecureStream::send(int socket, const void* data, std::size_t bytes) {
  if (outbox_.empty()) {
    const auto length = static_cast<std::uint32_t>(std::min(bytes, kLargest));
    outbox_.resize(Cipher::kLengthBytes + length + Cipher::kTagBytes);
    std::memcpy(outbox_.data(), &length, Cipher::kLengthBytes);
    const auto tag = sealer_.seal(data, outbox_.data() + Cipher::kLengthBytes, length);
    std::memcpy(outbox_.data() + Cipher::kLengthBytes + length, tag.data(), Cipher::kTagBytes);
    unreported_ = length;
    flushed_ = 0;
  }
  if (!flush(socket)) return -1;
  outbox_.clear();
  return static_cast<ssize_t>(unreported_);
}

bool SecureStream::flush(int socket) {
  while (flushed_ < outbox_.size()) {
    const auto sent = ::send(socket, outbox_.data() + flushed_, outbox_.size() - flushed_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return false;
    flushed_ += static_cast<std::size_t>(sent);
  }
  return true;
}

ssize_t SecureStream::receive(int socket, void* data, std::size_t bytes) {
  if (read_ == opened_) {
    const auto header = fill(socket, Cipher::kLengthBytes);
    if (header <= 0) return header;
    std::uint32_t length = 0;
    std::memcpy(&length, inbox_.data(), Cipher::kLengthBytes);
    if (length == 0 || length > kLargest) {
      errno = EBADMSG;
      return -1;
    }
    const auto record = fill(socket, Cipher::kLengthBytes + length + Cipher::kTagBytes);
    if (record <= 0) return record;
    Cipher::Tag tag{};
    std::memcpy(tag.data(), inbox_.data() + Cipher::kLengthBytes + length, Cipher::kTagBytes);
    auto* const text = inbox_.data() + Cipher::kLengthBytes;
    if (!opener_.open(text, text, length, tag)) {
      errno = EBADMSG;
      return -1;
    }
    filled_ = read_ = 0;
    opened_ = length;
  }
  const auto taken = std::min(bytes, opened_ - read_);
  std::memcpy(data, inbox_.data() + Cipher::kLengthBytes + read_, taken);
  read_ += taken;
  return static_cast<ssize_t>(taken);
}

// Returns what the system says last, which is above 0 once so many bytes of the record are there.
ssize_t SecureStream::fill(int socket, std::size_t bytes) {
  ssize_t got = 1;
  while (filled_ < bytes && got > 0) {
    got = recv(socket, inbox_.data() + filled_, bytes - filled_, MSG_DONTWAIT);
    if (got > 0) filled_ += static_cast<std::size_t>(got);
  }
  return got;
}

}  // namespace libtrain::detail
