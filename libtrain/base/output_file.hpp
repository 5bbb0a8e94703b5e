#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <libtrain/base/file_descriptor.hpp>

namespace libtrain::detail {

/// A local file that is complete or absent: it is written under a temporary name beside its own, which nothing else
/// uses, and takes its name when it is committed. A link is followed: the file that it leads to is replaced.
///
/// What is no regular file (a device, a FIFO) is never replaced but written to as it is, and so is what this process
/// has open already (/dev/stdout, /dev/fd/5): that may have part of the bytes before commit().
///
/// Errors are EnvironmentError that name the file; once something could not be written, all that follows fails, so that
/// no file with a hole gets the name. Used by one thread at a time.
class OutputFile {
 public:
  /// The folder of `path` must exist; a FIFO must have a reader.
  explicit OutputFile(std::string path);

  OutputFile(const OutputFile&) = delete;  // owns the file of the temporary name
  OutputFile& operator=(const OutputFile&) = delete;

  /// Removes what was written, unless it is committed.
  ~OutputFile();

  /// Finds out whether the file could be written, and changes nothing.
  static void require_writable(const std::string& path);

  /// Whether a file of this path is put in place as a whole, and not written to as it is.
  static bool replaces(const std::string& path);

  void write(std::string_view bytes);

  /// Stores everything on the disk and gives the file its name, in place of a file that had it. The last call.
  void commit();

  const std::string& path() const { return path_; }

  /// Bytes written so far.
  std::uint64_t size() const { return size_; }

  bool committed() const { return committed_; }

 private:
  void flush();
  void write_through(std::string_view bytes);
  void require_sound();
  [[noreturn]] void fail(std::string_view action, int error);

  std::string path_;
  std::string replaced_;   // what the path leads to; empty where that is written to as it is
  std::string temporary_;  // of what is replaced
  std::string buffer_;
  std::uint64_t size_ = 0;
  int error_ = 0;  // the first one
  FileDescriptor descriptor_;
  bool committed_ = false;
};

}  // namespace libtrain::detail
