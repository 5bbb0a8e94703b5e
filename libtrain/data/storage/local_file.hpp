#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>

#include <libtrain/data/storage/file.hpp>

namespace libtrain::data::detail {

/// Opens a regular file of this machine (or of what it has mounted), which is read by pread(2).
///
/// What an open file notices: a read that finds fewer bytes than there were says whether the file was changed or cut
/// since it was opened. A file that is deleted or replaced under its name stays readable as it was, as POSIX has it.
/// Bytes overwritten in place without a change of length are not noticed.
///
/// Throws EnvironmentError that names the file where it is missing, is no regular file, or may not be read; and
/// StorageUnavailable where it is not to blame, then and in reading: see throw_if_not_of_the_file().
std::unique_ptr<const File> open_local_file(const std::string& path);

/// What FileInfo::version is for local files: time of modification in nanoseconds, size, inode.
std::string local_version(const struct stat& status);

}  // namespace libtrain::data::detail
