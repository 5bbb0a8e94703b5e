#pragma once

namespace libtrain::detail {

enum class LockResult {
  taken,
  refused,      ///< another open file has it
  unavailable,  ///< the file system has no locks; the reason is in errno
};

/// Tries to lock a regular file, open for writing, against every other open of it in this process, in other processes
/// and, where the file system supports that, on other hosts. Does not wait. The kernel releases the lock when the
/// descriptor is closed or its process ends, even if it is killed.
///
/// This is flock(2). An NFS client turns it into a lock on the server, which keeps out other hosts as well; the server
/// drops it about 90 s after the host disappeared (NFS 4), or when that host has restarted (NFS 3). A mount with
/// local_lock, and most file systems in user space, keep out only processes of the same host.
LockResult try_lock_file(int descriptor) noexcept;

}  // namespace libtrain::detail
