#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace libtrain::data {

/// A local or remote file with random access. Immutable while it is open: any thread may read, several at once.
class File {
 public:
  virtual ~File() = default;

  /// The path or URI of the file for messages, without anything secret.
  virtual const std::string& name() const = 0;

  /// The number of bytes when the file was opened.
  virtual std::uint64_t size() const = 0;

  /// Fills `to` with the bytes from `offset` on. Throws EnvironmentError that names the file and the byte offset if the
  /// file has fewer bytes or cannot be read after all retries, and in an object store if it was deleted or, as far as
  /// StorageOptions::change_check notices, changed since it was opened. Other changes of a local file go unnoticed.
  virtual void read_at(std::uint64_t offset, std::span<std::byte> to) const = 0;

  /// Fills `first` and then `second` with the bytes from `offset` on, by one request if requests are slow. Throws as
  /// read_at.
  virtual void read_parts_at(std::uint64_t offset, std::span<std::byte> first, std::span<std::byte> second) const {
    read_at(offset, first);
    read_at(offset + first.size(), second);
  }
};

namespace detail {

/// `*file`; throws UsageError, which names `what`, such as "tar shard", for nullptr.
const File& require_file(const File* file, std::string_view what);

/// For File::read_at: throws EnvironmentError that names the file and the offset unless it has `count` bytes from
/// `offset` on.
void require_range(const File& file, std::uint64_t offset, std::size_t count);

/// The `count` bytes from `offset` on. Throws as File::read_at.
std::string read_range(const File& file, std::uint64_t offset, std::size_t count);

}  // namespace detail

/// The whole file. Throws as File::read_at, and EnvironmentError for a file longer than `limit_bytes`.
std::string read_all(const File& file, std::uint64_t limit_bytes);

}  // namespace libtrain::data
