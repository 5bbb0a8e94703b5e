#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data::detail {

/// A folder on a local disk or mount. FileInfo::version consists of the times of modification and of change in
/// nanoseconds, the size and the inode: every write to a file changes it, even if its size and modification time are
/// restored. Paths with a part "..", "." or an empty part are refused. A failing disk or mount, and a limit that
/// prevents this process from opening files, is a StorageUnavailable.
class LocalStorage final : public Storage {
 public:
  /// Throws EnvironmentError if `root` is not a folder.
  explicit LocalStorage(const std::string& root);

  const std::string& name() const override { return root_; }

  /// The absolute path without links.
  std::string identity() const override { return identity_; }

  /// The path, the id of the kernel's boot, and the device and inode of the folder.
  std::string local_identity() const override { return local_identity_; }
  std::unique_ptr<const File> open(const std::string& path) const override;
  FileInfo info(const std::string& path) const override;

  /// Follows links to files and to folders. Leaves out a folder "lost+found" directly in `folder`, which a file system
  /// has at its root and which only root may open. A link to a folder that contains it counts as an empty folder, so
  /// that the list is finite. A file behind two links is listed twice. Takes one stat(2) per file. Throws
  /// EnvironmentError as well for folders that are nested more than 200 deep.
  std::vector<FileInfo> list(const std::string& folder) const override;

  std::optional<std::vector<std::string>> folders(const std::string& folder) const override;

 private:
  std::string path_of(const std::string& path) const;

  std::string root_;
  std::string identity_;
  std::string local_identity_;
};

/// Whether a folder, which need not exist, is the local folder of a storage or below it, where its files would be
/// listed with those of the storage. False for object stores.
bool is_inside(const std::filesystem::path& folder, const Storage& storage);

/// Opens a regular file on a local disk or mount, which is read by pread(2).
///
/// Changes of an open file: if a read returns fewer bytes than expected, the error tells whether the file has changed
/// since it was opened. A file that is deleted or replaced stays readable, as POSIX specifies. Bytes that are
/// overwritten in place without a change of length are not detected.
///
/// Throws EnvironmentError that names the file if it is missing, not a regular file, or may not be read. Opening and
/// reading throw StorageUnavailable for errors that are not about the file: see throw_if_not_of_the_file().
std::unique_ptr<const File> open_local_file(const std::string& path);

}  // namespace libtrain::data::detail
