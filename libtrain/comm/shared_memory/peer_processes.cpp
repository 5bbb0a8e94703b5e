#include <libtrain/comm/shared_memory/peer_processes.hpp>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

FileDescriptor watch(pid_t process) {
  FileDescriptor handle{static_cast<int>(syscall(SYS_pidfd_open, process, 0))};
  const bool is_unsupported = errno == ENOSYS || errno == EPERM;  // EPERM: filtered by a container's profile
  if (!handle.is_open() && !is_unsupported) {
    throw EnvironmentError(text("Cannot watch process ", process, " of a peer: ", std::strerror(errno), "."));
  }
  return handle;
}

}  // namespace

PeerProcesses::PeerProcesses(std::vector<pid_t> processes) : processes_(std::move(processes)) {
  for (const auto process : processes_) {
    handles_.push_back(process == getpid() ? FileDescriptor{} : watch(process));
  }
}

bool PeerProcesses::is_gone(int rank) const {
  const auto& handle = handles_[static_cast<std::size_t>(rank)];
  if (!handle.is_open()) return false;
  pollfd request{.fd = handle.number(), .events = POLLIN, .revents = 0};
  return poll(&request, 1, 0) == 1;
}

}  // namespace libtrain::detail
