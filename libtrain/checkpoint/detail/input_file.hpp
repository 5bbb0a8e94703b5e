#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <libtrain/base/file_descriptor.hpp>

namespace libtrain::detail {

/// A local regular file that is read at any offset. Reading instead of mapping: a file that is truncated meanwhile is
/// an error, not a signal. Immutable: any thread may read, several at once.
class InputFile {
 public:
  /// Throws EnvironmentError that names the file if it is missing, not a regular file, or may not be read. `what` names
  /// the kind of file at the beginning of messages, such as "Safetensors file".
  InputFile(std::string path, std::string_view what);

  const std::string& path() const { return path_; }

  /// The number of bytes when the file was opened.
  std::uint64_t size() const { return size_; }

  /// Fills `to` with the bytes from `offset` on, which end within size(). Throws EnvironmentError that names the file
  /// and the offset if it was truncated since it was opened, or cannot be read.
  void read_at(std::uint64_t offset, std::span<std::byte> to) const;

  /// The `bytes` bytes from `offset` on. Throws as read_at, and EnvironmentError if they do not end within size() or do
  /// not fit into memory.
  std::string read(std::uint64_t offset, std::uint64_t bytes) const;

  /// The CRC-32C of bytes that end within size(), read piece by piece. Throws as read_at.
  std::uint32_t crc32c(std::uint64_t offset, std::uint64_t bytes) const;

  /// "Safetensors file 'model.safetensors'".
  const std::string& description() const { return description_; }

 private:
  std::string path_;
  std::string description_;
  std::uint64_t size_ = 0;
  FileDescriptor descriptor_;
};

}  // namespace libtrain::detail
