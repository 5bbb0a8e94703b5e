#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// A storage that does not answer or refuses who asks, a disk or a mount that fails, a process that may open no more
/// files: this says nothing about the file that was asked for.
class StorageUnavailable : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

/// What a storage knows of a file without reading it.
struct FileInfo {
  std::string path;        ///< below the storage's root, with '/' between its parts
  std::uint64_t size = 0;  ///< bytes
  std::string version;     ///< changes when the file does: an entity tag, or a time of change in nanoseconds
};

/// A folder and all below it, on a local disk or in an object store, to be read. Paths are relative to that folder,
/// with '/' between their parts. All that asks the storage throws StorageUnavailable as well. Any thread may call it,
/// several at once.
class Storage {
 public:
  virtual ~Storage() = default;

  /// How messages name the root: its path or its URI without anything secret.
  virtual const std::string& name() const = 0;

  /// Throws EnvironmentError that names the file where it is missing or may not be read.
  virtual std::unique_ptr<const File> open(const std::string& path) const = 0;

  /// As open(), without opening it.
  virtual FileInfo info(const std::string& path) const = 0;

  /// All regular files below `folder` ("" for the root), at any depth, sorted by path as bytes.
  /// Throws EnvironmentError where the folder is missing or may not be listed.
  virtual std::vector<FileInfo> list(const std::string& folder) const = 0;
};

}  // namespace libtrain::data
