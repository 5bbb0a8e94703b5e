#include <libtrain/base/detail/file_lock.hpp>

#include <sys/file.h>

#include <cerrno>

namespace libtrain::detail {

LockResult try_lock_file(int descriptor) noexcept {
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return errno == EWOULDBLOCK ? LockResult::refused : LockResult::unavailable;
  }
  return LockResult::taken;
}

}  // namespace libtrain::detail
