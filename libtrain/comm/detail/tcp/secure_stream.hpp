#pragma once

#include <sys/types.h>

#include <string>

#include <libtrain/comm/detail/tcp/cipher.hpp>

namespace libtrain::detail {

/// Encrypts and authenticates the bytes of a connection, in records of at most 64 KiB. Its functions are those of the
/// system for a socket that does not block: they return how many bytes went or came, 0 where the peer has closed the
/// connection, or -1 and errno; EBADMSG where the bytes are not what the peer has sent. One thread at a time.
class SecureStream {
 public:
  /// `session_secret` is that of the handshake which opened the connection (Handshake::session_secret).
  SecureStream(const Digest& session_secret, Cipher::Direction own);

  /// Where less than everything is sent, the next call must begin with the bytes that were not.
  ssize_t send(int socket, const void* data, std::size_t bytes);
  ssize_t receive(int socket, void* data, std::size_t bytes);

 private:
  bool flush(int socket);
  ssize_t fill(int socket, std::size_t bytes);

  Cipher sealer_;
  Cipher opener_;
  std::string outbox_;          // a record on its way
  std::size_t flushed_ = 0;     // of outbox_
  std::size_t unreported_ = 0;  // bytes in outbox_ that the caller takes for not sent yet
  std::string inbox_;           // a record that is coming, or one that is open and read in part
  std::size_t filled_ = 0;      // of inbox_
  std::size_t opened_ = 0;      // bytes of plain text in inbox_
  std::size_t read_ = 0;        // of opened_
};

}  // namespace libtrain::detail
