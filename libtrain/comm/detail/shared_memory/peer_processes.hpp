#pragma once

#include <sys/types.h>

#include <vector>

#include <libtrain/base/file_descriptor.hpp>

namespace libtrain::detail {

/// Watches whether the processes of a group's ranks have exited.
class PeerProcesses {
 public:
  /// Element r of `processes` is the process of rank r; this process is not watched. Throws EnvironmentError.
  explicit PeerProcesses(std::vector<pid_t> processes);

  pid_t of(int rank) const { return processes_[static_cast<std::size_t>(rank)]; }

  /// Whether the rank's process has exited or was killed, also before its parent has waited for it.
  bool has_exited(int rank) const;

 private:
  struct Watch {
    FileDescriptor handle;  ///< a pidfd
    FileDescriptor status;  ///< /proc/<pid>/stat instead, on kernels before 5.3 and in containers that forbid pidfds
  };
  static Watch watch(pid_t process);

  std::vector<pid_t> processes_;
  std::vector<Watch> watches_;
};

/// Whether the process of an open /proc/<pid>/stat has ended. The file keeps referring to that process, even if another
/// one gets its number.
bool has_ended(const FileDescriptor& status);

}  // namespace libtrain::detail
