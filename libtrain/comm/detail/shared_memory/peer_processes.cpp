#include <libtrain/comm/detail/shared_memory/peer_processes.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

PeerProcesses::Watch PeerProcesses::watch(pid_t process) {
  Watch watch{.handle = FileDescriptor{static_cast<int>(syscall(SYS_pidfd_open, process, 0))}, .status = {}};
  if (watch.handle.is_open()) return watch;
  if (errno == ENOSYS || errno == EPERM) {
    watch.status = FileDescriptor{open(text("/proc/", process, "/stat").c_str(), O_RDONLY | O_CLOEXEC)};
  }
  if (!watch.status.is_open()) {
    throw EnvironmentError(text("Cannot watch process ", process, " of a peer: ", std::strerror(errno), "."));
  }
  return watch;
}

bool has_ended(const FileDescriptor& status) {
  std::array<char, 512> line;
  const auto length = pread(status.get(), line.data(), line.size(), 0);
  if (length <= 0) return length == 0 || errno == ESRCH;
  // "1234 (name) S ...": names may contain any character, states are letters; Z and X are those of ended processes.
  const std::string_view fields{line.data(), static_cast<std::size_t>(length)};
  const auto name_end = fields.rfind(')');
  const bool has_state = name_end != std::string_view::npos && name_end + 2 < fields.size();
  return has_state && (fields[name_end + 2] == 'Z' || fields[name_end + 2] == 'X');
}

PeerProcesses::PeerProcesses(std::vector<pid_t> processes) : processes_(std::move(processes)) {
  for (const auto process : processes_) {
    watches_.push_back(process == getpid() ? Watch{} : watch(process));
  }
}

bool PeerProcesses::has_exited(int rank) const {
  const auto& watch = watches_[static_cast<std::size_t>(rank)];
  if (watch.status.is_open()) return has_ended(watch.status);
  if (!watch.handle.is_open()) return false;
  pollfd request{.fd = watch.handle.get(), .events = POLLIN, .revents = 0};
  return poll(&request, 1, 0) == 1;
}

}  // namespace libtrain::detail
