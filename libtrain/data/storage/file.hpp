#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace libtrain::data {

/// A file, local or remote, that is read at any place. Immutable while it is open: any thread may read, several at
/// once.
class File {
 public:
  virtual ~File() = default;

  /// How messages name the file: its path or its URI without anything secret.
  virtual const std::string& name() const = 0;

  /// Bytes, as of when it was opened.
  virtual std::uint64_t size() const = 0;

  /// Fills `to` with the bytes from `offset` on. Throws EnvironmentError that names the file and the byte offset where
  /// there are not so many, where the file was deleted or changed since it was opened, or where reading fails for good.
  virtual void read_at(std::uint64_t offset, std::span<std::byte> to) const = 0;

  /// Fills `first` and then `second` with the bytes from `offset` on, as one request where requests take long. Throws
  /// as read_at.
  virtual void read_parts_at(std::uint64_t offset, std::span<std::byte> first, std::span<std::byte> second) const {
    read_at(offset, first);
    read_at(offset + first.size(), second);
  }
};

namespace detail {

/// `*file`; throws UsageError without one, for the opening of `what`, such as a "tar shard".
const File& require_file(const File* file, std::string_view what);

/// For File::read_at: throws EnvironmentError that names the file and the offset unless it holds `count` bytes from
/// `offset` on.
void require_range(const File& file, std::uint64_t offset, std::size_t count);

/// The `count` bytes from `offset` on. Throws as File::read_at.
std::string read_range(const File& file, std::uint64_t offset, std::size_t count);

}  // namespace detail

/// The whole file. Throws as File::read_at; EnvironmentError as well for a file longer than `limit_bytes`.
std::string read_all(const File& file, std::uint64_t limit_bytes);

}  // namespace libtrain::data
