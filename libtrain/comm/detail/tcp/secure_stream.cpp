#include <libtrain/comm/detail/tcp/secure_stream.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <libtrain/comm/detail/tcp/socket.hpp>

namespace libtrain::detail {

namespace {

constexpr std::size_t kMaxPlainBytes = std::size_t{64} << 10;  // of a record

}  // namespace

SecureStream::SecureStream(const Digest& session_secret, Cipher::Direction own)
    : sealer_(session_secret, own), opener_(session_secret, Cipher::opposite(own)) {
  inbox_.resize(Cipher::record_bytes(kMaxPlainBytes));
}

ssize_t SecureStream::send(int socket, const void* data, std::size_t bytes) {
  if (outbox_.empty()) {
    unreported_ = std::min(bytes, kMaxPlainBytes);
    sealer_.seal_record(data, unreported_, outbox_);
  }
  if (!send_queued(socket, outbox_)) return -1;
  if (outbox_.empty()) return static_cast<ssize_t>(unreported_);
  errno = EAGAIN;
  return -1;
}

ssize_t SecureStream::receive(int socket, void* data, std::size_t bytes) {
  if (read_ == opened_) {
    const auto header = fill(socket, Cipher::kLengthBytes);
    if (header <= 0) return header;
    const auto length = Cipher::length_of(inbox_.data());
    if (length == 0 || length > kMaxPlainBytes) {
      errno = EBADMSG;
      return -1;
    }
    const auto record = fill(socket, Cipher::record_bytes(length));
    if (record <= 0) return record;
    if (!opener_.open_record(inbox_.data())) {
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

// The last result of recv(2), or 1 if it was not called: above 0 once the inbox has `bytes` bytes of the record.
ssize_t SecureStream::fill(int socket, std::size_t bytes) {
  ssize_t got = 1;
  while (filled_ < bytes && got > 0) {
    got = recv(socket, inbox_.data() + filled_, bytes - filled_, MSG_DONTWAIT);
    if (got > 0) filled_ += static_cast<std::size_t>(got);
  }
  return got;
}

ssize_t PeerConnection::send(const void* data, std::size_t bytes) const {
  if (stream) return stream->send(socket.get(), data, bytes);
  return ::send(socket.get(), data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t PeerConnection::receive(void* data, std::size_t bytes) const {
  if (stream) return stream->receive(socket.get(), data, bytes);
  return recv(socket.get(), data, bytes, MSG_DONTWAIT);
}

}  // namespace libtrain::detail
