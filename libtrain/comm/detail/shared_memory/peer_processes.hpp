#pragma once

#include <sys/types.h>

#include <vector>

#include <libtrain/base/file_descriptor.hpp>

namespace libtrain::detail {

/// The processes of a group's ranks, watched for their end.
class PeerProcesses {
 public:
  /// Ranks of this process are not watched. Throws EnvironmentError.
  explicit PeerProcesses(std::vector<pid_t> processes);

  pid_t of(int rank) const { return processes_[static_cast<std::size_t>(rank)]; }

  /// Whether the rank's process has exited or was killed, also while its parent has not taken note.
  bool is_gone(int rank) const;

 private:
  struct Watch {
    FileDescriptor handle;  ///< a pidfd
    FileDescriptor status;  ///< /proc/<pid>/stat instead, on kernels before 5.3 and where a container forbids pidfds
  };
  static Watch watch(pid_t process);

  std::vector<pid_t> processes_;
  std::vector<Watch> watches_;
};

/// Whether the process of an open /proc/<pid>/stat has ended. The file stays that process's, also when another one gets
/// its number.
bool has_ended(const FileDescriptor& status);

}  // namespace libtrain::detail
