#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/base/file_descriptor.hpp>

namespace libtrain::detail {

/// Throws EnvironmentError: "Cannot `action` '`path`': meaning of the error code. Advice."
[[noreturn]] void throw_checkpoint_error(std::string_view action, const std::filesystem::path& path, int error);

/// An open folder, whose files are named relative to it: they are those of the folder that was opened, even if its path
/// has since come to mean another one, and a symbolic link among them is never followed. Names are single components.
/// The functions that change something throw EnvironmentError. Any thread may call them.
class Folder {
 public:
  /// Links in `path` itself are followed: users put a run's folder where they like. Throws EnvironmentError.
  explicit Folder(std::filesystem::path path);

  /// The folder `name` in this one. Throws EnvironmentError, also if it is a symbolic link.
  Folder inside(const std::string& name) const;

  const std::filesystem::path& path() const { return path_; }

  /// All names but "." and "..", sorted.
  std::vector<std::string> names() const;

  /// std::nullopt if there is nothing of this name.
  std::optional<struct stat> status(const std::string& name) const;

  /// As openat(2) with O_NOFOLLOW and O_CLOEXEC; if that fails, the result is not open and errno has the reason.
  FileDescriptor open_file(const std::string& name, int flags) const;

  /// Opens a new file for writing. Throws EnvironmentError, also if the name is taken.
  FileDescriptor create_file(const std::string& name) const;

  void make_folder(const std::string& name) const;

  /// Replaces a file; replaces a folder only if it is empty.
  void rename(const std::string& from, const std::string& to) const;

  /// Stores the names of this folder on the disk.
  void sync() const;

  void remove_file(const std::string& name) const;

  /// Removes the folder `name` and the files in it; folders in it, which the checkpoint format does not have, remain.
  /// Returns 0, or the reason why something remains.
  int remove_folder(const std::string& name) const noexcept;

 private:
  Folder(std::filesystem::path path, FileDescriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  std::filesystem::path path_;
  FileDescriptor descriptor_;
};

/// Writes `bytes` to a new file, stores it on the disk and closes it. Throws EnvironmentError.
void write_synced(const Folder& folder, const std::string& name, std::string_view bytes);

/// Stores an open file on the disk and closes it; network file systems report failed writes only then.
void sync_and_close(FileDescriptor file, const std::filesystem::path& path);

/// The content of a regular file of at most `limit_bytes` bytes; std::nullopt if there is no such file. Throws
/// EnvironmentError.
std::optional<std::string> read_small_file(const Folder& folder, const std::string& name, std::uint64_t limit_bytes);

}  // namespace libtrain::detail
