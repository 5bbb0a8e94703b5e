#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// The storage does not answer or denies access, a disk or mount fails, or the process has no file descriptors left.
/// The error is not about the requested file.
class StorageUnavailable : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

enum class FileKind : std::uint8_t {
  file,
  empty_folder,  ///< a folder that contains no file at any depth
  unreadable,    ///< a broken link, a FIFO, a socket or a device: opening it fails
};

/// The properties of a file, without its content.
struct FileInfo {
  std::string path;        ///< below the storage's root, with '/' between its parts and at the end of an empty folder
  std::uint64_t size = 0;  ///< bytes; 0 unless it is a file
  std::string version;     ///< changes with the file: an entity tag, or a time of change in nanoseconds
  FileKind kind = FileKind::file;
};

/// Read access to a folder and everything below it, on a local disk or in an object store. Paths are relative to that
/// folder, with '/' between their parts. All functions that access the storage throw StorageUnavailable as well. Any
/// thread may call it, several at once.
class Storage {
 public:
  virtual ~Storage() = default;

  /// The path or URI of the root for messages, without anything secret.
  virtual const std::string& name() const = 0;

  /// Identifies the copies of its files: equal only for storages of the same files, in all processes of this machine. A
  /// name is not enough: a relative path means another folder in another working directory, and two endpoints may have
  /// buckets of the same name. Contains nothing secret.
  virtual std::string identity() const { return name(); }

  /// As identity(), but also differs if the same path means another folder, as it may on another machine. Different
  /// values do not prove different folders: a network folder has one value on each machine.
  virtual std::string local_identity() const { return identity(); }

  /// Throws EnvironmentError that names the file if it is missing or may not be read.
  virtual std::unique_ptr<const File> open(const std::string& path) const = 0;

  /// As open(), without opening it.
  virtual FileInfo info(const std::string& path) const = 0;

  /// All regular files below `folder` ("" for the root), at any depth, sorted by path as bytes. Entries that a reader
  /// would otherwise miss silently are listed as well: empty folders, and entries that cannot be read. Object stores
  /// have empty folders only if a marker exists for them, and no unreadable entries. Throws EnvironmentError if the
  /// folder is missing or may not be listed.
  virtual std::vector<FileInfo> list(const std::string& folder) const = 0;

  /// The names of the folders directly in `folder` ("" for the root), sorted as bytes. Takes a single request;
  /// std::nullopt if that would need a list of all files, as in Google Cloud Storage. Throws as list().
  virtual std::optional<std::vector<std::string>> folders(const std::string& folder) const = 0;
};

/// Identifies one version of one file of one storage.
struct CacheKey {
  ContentHash hash = {};   ///< hash of the storage's identity and the file's path, size and version
  std::uint64_t size = 0;  ///< size of the file in bytes

  bool operator==(const CacheKey&) const = default;
};

/// `storage` is the storage's identity().
CacheKey cache_key(const std::string& storage, const FileInfo& file);

namespace detail {

/// Whether a relative `path` stays below its root: parts joined by single slashes, none of them "." or "..", no zero
/// byte. Paths come from files and from the listings of stores, which are not trusted.
bool leads_below(std::string_view path);

/// Throws EnvironmentError that names both unless `path` stays below `root`.
void require_path_below(const std::string& root, std::string_view path);

/// The name of `path` ("" for the root) in the storage, for messages.
std::string describe(const Storage& storage, const std::string& path);

/// Opens the file and checks that it is the version that `key` identifies: reading the result gives bytes of that
/// version or an error, as far as File::read_at notices. Throws EnvironmentError if the file was deleted or changed.
std::unique_ptr<const File> open_unchanged(const Storage& from, const std::string& path, const CacheKey& key);

/// Opens the file for a copy and checks only its length; require_unchanged() checks the rest after the last read.
std::unique_ptr<const File> open_to_copy(const Storage& from, const std::string& path, const CacheKey& key);

/// Checks that the file still is the version that `key` identifies, after it was copied: a read notices only a change
/// of the length, or a change that is older than StorageOptions::change_check. Throws as open_unchanged().
void require_unchanged(const Storage& from, const std::string& path, const CacheKey& key);

/// Calls work(i, stop) once for each i below `count`, from at most `threads` threads: requests to a storage wait more
/// than they compute. After an exception no more calls begin, a stop is requested, and the exception of the smallest i
/// is rethrown when all threads have returned.
void run_concurrently(std::size_t count, std::size_t threads,
                      const std::function<void(std::size_t, const std::stop_token&)>& work);

}  // namespace detail

}  // namespace libtrain::data
