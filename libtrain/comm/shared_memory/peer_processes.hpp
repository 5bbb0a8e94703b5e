#pragma once

#include <sys/types.h>

#include <vector>

#include <libtrain/comm/shared_memory/file_descriptor.hpp>

namespace libtrain::detail {

/// The processes of a group's ranks, watched for their end.
class PeerProcesses {
 public:
  /// Ranks of this process are not watched, nor are any on kernels before 5.3, which cannot. Throws EnvironmentError.
  explicit PeerProcesses(std::vector<pid_t> processes);

  pid_t of(int rank) const { return processes_[static_cast<std::size_t>(rank)]; }

  /// Whether the rank's process has exited or was killed, also while its parent has not taken note.
  bool is_gone(int rank) const;

 private:
  std::vector<pid_t> processes_;
  std::vector<FileDescriptor> handles_;
};

}  // namespace libtrain::detail
