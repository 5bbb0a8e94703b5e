#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <libtrain/base/file_descriptor.hpp>

namespace libtrain::detail {

/// A local file that is complete or absent: it is written under a unique temporary name in the same folder and renamed
/// when it is committed. A symbolic link is followed: its target is replaced.
///
/// A device, a FIFO and a file that this process already has open (/dev/stdout, /dev/fd/5) are not replaced: bytes are
/// written to them directly, possibly before commit().
///
/// Errors are EnvironmentError that name the file. After a failed write all later calls fail, so that no incomplete
/// file gets the name. Used by one thread at a time.
class OutputFile {
 public:
  /// The folder of `path` must exist; a FIFO must have a reader.
  explicit OutputFile(std::string path);

  OutputFile(const OutputFile&) = delete;  // owns the file of the temporary name
  OutputFile& operator=(const OutputFile&) = delete;

  /// Removes the temporary file unless it was committed.
  ~OutputFile();

  /// Throws if the file cannot be written; changes nothing.
  static void require_writable(const std::string& path);

  /// Whether a file at this path is replaced as a whole instead of written to directly.
  static bool replaces(const std::string& path);

  void write(std::string_view bytes);

  /// Stores all bytes on the disk and renames the file, replacing an existing one. Must be the last call.
  void commit();

  const std::string& path() const { return path_; }

  /// Bytes written so far.
  std::uint64_t size() const { return size_; }

  bool committed() const { return committed_; }

 private:
  void flush();
  void write_through(std::string_view bytes);
  void require_no_error();
  [[noreturn]] void fail(std::string_view action, int error);

  std::string path_;
  std::string replaced_;   // the file that the path refers to; empty if it is written to directly
  std::string temporary_;  // empty likewise
  std::string buffer_;
  std::uint64_t size_ = 0;
  int error_ = 0;  // the first one
  FileDescriptor descriptor_;
  bool committed_ = false;
};

}  // namespace libtrain::detail
