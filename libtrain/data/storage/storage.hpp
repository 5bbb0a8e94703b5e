#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// A storage that does not answer or refuses who asks, a disk or a mount that fails, a process that may open no more
/// files: this says nothing about the file that was asked for.
class StorageUnavailable : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

enum class FileKind : std::uint8_t {
  file,
  empty_folder,  ///< in which no file lies, at any depth
  unreadable,    ///< a link that leads nowhere, a FIFO, a socket, a device: opening it fails
};

/// What a storage knows of a file without reading it.
struct FileInfo {
  std::string path;        ///< below the storage's root, with '/' between its parts, and behind an empty folder
  std::uint64_t size = 0;  ///< bytes; 0 unless it is a file
  std::string version;     ///< changes when the file does: an entity tag, or a time of change in nanoseconds
  FileKind kind = FileKind::file;
};

/// A folder and all below it, on a local disk or in an object store, to be read. Paths are relative to that folder,
/// with '/' between their parts. All that asks the storage throws StorageUnavailable as well. Any thread may call it,
/// several at once.
class Storage {
 public:
  virtual ~Storage() = default;

  /// How messages name the root: its path or its URI without anything secret.
  virtual const std::string& name() const = 0;

  /// Under which copies of its files are kept: equal for two storages of the same files only, whichever process of this
  /// machine opens them. A name does not do for that: one relative path is another folder in another working directory,
  /// and one bucket's name may be known at two endpoints. Nothing secret.
  virtual std::string identity() const { return name(); }

  /// As identity(), and another one where a path leads to another folder, as it may on another machine. That it differs
  /// says little: a network's folder has one on each machine.
  virtual std::string local_identity() const { return identity(); }

  /// Throws EnvironmentError that names the file where it is missing or may not be read.
  virtual std::unique_ptr<const File> open(const std::string& path) const = 0;

  /// As open(), without opening it.
  virtual FileInfo info(const std::string& path) const = 0;

  /// All regular files below `folder` ("" for the root), at any depth, sorted by path as bytes. What a reader would
  /// miss without a word is listed, too: folders without a file, and what lies where a file may be expected and cannot
  /// be read. Object stores have empty folders where something has marked them, and nothing of the latter kind. Throws
  /// EnvironmentError where the folder is missing or may not be listed.
  virtual std::vector<FileInfo> list(const std::string& folder) const = 0;

  /// The names of the folders right in `folder` ("" for the root), sorted as bytes: those that begin the paths which
  /// list() finds below other folders. A single look, which costs little: none where only a list of
  /// all files would tell, as in Google Cloud Storage. Throws as list().
  virtual std::vector<std::string> folders(const std::string& folder) const = 0;
};

/// Names one version of one file of one storage.
struct CacheKey {
  ContentHash hash = {};   ///< of the storage's identity and the file's path, size and version
  std::uint64_t size = 0;  ///< of the file, in bytes

  bool operator==(const CacheKey&) const = default;
};

/// `storage` is the storage's identity().
CacheKey cache_key(const std::string& storage, const FileInfo& file);

namespace detail {

/// Whether `path` leads to something below where it begins: parts joined by single slashes, none of them "." or "..",
/// no zero byte. Paths come from files and from what stores list, which are not trusted: none leads out.
bool leads_below(std::string_view path);

/// Throws EnvironmentError that names both unless `path` leads from `root` to something below it.
void require_path_below(const std::string& root, std::string_view path);

/// `path` in the storage, as messages name it.
std::string describe(const Storage& storage, const std::string& path);

/// Opens the file as it is, and makes sure that it is the version that `key` names: what is read from the result is of
/// that version or an error (see File::read_at). Throws EnvironmentError where the file was deleted or changed.
std::unique_ptr<const File> open_unchanged(const Storage& from, const std::string& path, const CacheKey& key);

}  // namespace detail

}  // namespace libtrain::data
