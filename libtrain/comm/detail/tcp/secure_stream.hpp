#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/comm/detail/tcp/cipher.hpp>

namespace libtrain::detail {

/// Encrypts and authenticates the bytes of a connection, in records of at most 64 KiB. Like the system calls on a
/// nonblocking socket, its functions return the number of bytes, 0 if the peer has closed the connection, or -1 and
/// errno: EBADMSG if the bytes are not those that the peer has sent. At most one thread sends and one receives.
class SecureStream {
 public:
  /// `session_secret` is the one of the handshake that opened the connection (Handshake::session_secret).
  SecureStream(const Digest& session_secret, Cipher::Direction own);

  /// If not all bytes are sent, the next call must begin with the first byte that was not sent.
  ssize_t send(int socket, const void* data, std::size_t bytes);
  ssize_t receive(int socket, void* data, std::size_t bytes);

 private:
  ssize_t fill(int socket, std::size_t bytes);

  Cipher sealer_;
  Cipher opener_;
  std::string outbox_;          // the part of a record that is not sent yet
  std::size_t unreported_ = 0;  // plain bytes of that record, which the caller repeats until it is sent
  std::string inbox_;           // a record that is being received, or one that is open and read in part
  std::size_t filled_ = 0;      // of inbox_
  std::size_t opened_ = 0;      // plain bytes in inbox_
  std::size_t read_ = 0;        // of opened_
};

/// A connection to a peer. Its functions are like those of SecureStream, also without encryption.
struct PeerConnection {
  FileDescriptor socket = {};
  std::unique_ptr<SecureStream> stream = nullptr;  ///< null without encryption

  ssize_t send(const void* data, std::size_t bytes) const;
  ssize_t receive(void* data, std::size_t bytes) const;
};

}  // namespace libtrain::detail
