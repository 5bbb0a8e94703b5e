#pragma once

#include <stop_token>

#include <libtrain/base/clock.hpp>
#include <libtrain/data/storage/disk_file.hpp>

namespace libtrain::data::detail {

/// flock(2) on files of a local disk. A lock belongs to the opened file: two opens of one file exclude each other, in
/// one process as in two, and the kernel releases it when the file is closed or the process is killed.
enum class LockMode { shared, exclusive };

/// False where another open of the file has a lock that does not go with `mode`. A lock that `file` has already is
/// given up for the new one. Throws DiskError where the file system has no locks.
bool try_lock(const DiskFile& file, LockMode mode);

/// Waits for the lock. False where the deadline passes or a stop is requested before.
bool lock_within(const DiskFile& file, LockMode mode, const Deadline& deadline, const std::stop_token& stop = {});

void unlock(const DiskFile& file) noexcept;

}  // namespace libtrain::data::detail
