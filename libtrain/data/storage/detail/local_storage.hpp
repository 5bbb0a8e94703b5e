#pragma once

#include <memory>
#include <string>
#include <vector>

#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data::detail {

/// A folder of this machine, or of what it has mounted. FileInfo::version is made of the times of modification and
/// of change in nanoseconds, the size and the inode: whatever is written to a file makes another one, also where its
/// size and its time of modification are set to what they were. Paths with a part "..", "." or nothing are refused. A
/// disk or a mount that fails, and what keeps this process from opening files, is a StorageUnavailable.
class LocalStorage final : public Storage {
 public:
  /// Throws EnvironmentError where `root` is not a folder.
  explicit LocalStorage(const std::string& root);

  const std::string& name() const override { return root_; }

  /// The absolute path, in which no link is left.
  std::string identity() const override { return identity_; }

  /// The path, the running kernel, and what that knows the folder by.
  std::string local_identity() const override { return local_identity_; }
  std::unique_ptr<const File> open(const std::string& path) const override;
  FileInfo info(const std::string& path) const override;

  /// Follows links to files and to folders. Leaves out a folder "lost+found" right in `folder`, which a file system has
  /// at its root, and which only root may open. A link to one of the folders that it lies in counts as an empty folder,
  /// so that the list ends. Files that two links lead to are listed twice. Costs one stat(2) a file. Throws
  /// EnvironmentError as well for folders nested more than 200 deep.
  std::vector<FileInfo> list(const std::string& folder) const override;

  std::vector<std::string> folders(const std::string& folder) const override;

 private:
  std::string path_of(const std::string& path) const;

  std::string root_;
  std::string identity_;
  std::string local_identity_;
};

/// Opens a regular file of this machine (or of what it has mounted), which is read by pread(2).
///
/// What an open file notices: a read that finds fewer bytes than there were says whether the file was changed or cut
/// since it was opened. A file that is deleted or replaced under its name stays readable as it was, as POSIX has it.
/// Bytes overwritten in place without a change of length are not noticed.
///
/// Throws EnvironmentError that names the file where it is missing, is no regular file, or may not be read; and
/// StorageUnavailable where it is not to blame, then and in reading: see throw_if_not_of_the_file().
std::unique_ptr<const File> open_local_file(const std::string& path);

}  // namespace libtrain::data::detail
