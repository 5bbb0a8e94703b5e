#include <libtrain/data/storage/file_lock.hpp>

#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace libtrain::data::detail {

namespace {

using namespace std::chrono_literals;

constexpr Deadline::Clock::duration kFirstPause = 500us;
constexpr Deadline::Clock::duration kLongestPause = 20ms;

}  // namespace

bool try_lock(const DiskFile& file, LockMode mode) {
  const int operation = (mode == LockMode::shared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  while (flock(file.descriptor(), operation) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) throw_disk_error("lock", file.path(), errno);
  }
  return true;
}

bool lock_within(const DiskFile& file, LockMode mode, const Deadline& deadline, const std::stop_token& stop) {
  // Asking again and again, because a flock that blocks has no deadline and does not hear a stop request.
  auto pause = kFirstPause;
  while (!try_lock(file, mode)) {
    if (deadline.expired() || stop.stop_requested()) return false;
    std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
    pause = std::min(2 * pause, kLongestPause);
  }
  return true;
}

void unlock(const DiskFile& file) noexcept {
  flock(file.descriptor(), LOCK_UN);
}

}  // namespace libtrain::data::detail
