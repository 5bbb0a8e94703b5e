#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <libtrain/base/file_descriptor.hpp>

namespace libtrain::data::detail {

/// A local file that is complete or absent: it is written under a temporary name beside its own, which nobody else
/// uses, and takes its name when it is committed. Errors are EnvironmentError that name the file; once something could
/// not be written, all that follows fails, so that no file with a hole gets the name. Used by one thread at a time.
class OutputFile {
 public:
  /// The folder of `path` must exist.
  explicit OutputFile(std::string path);

  OutputFile(const OutputFile&) = delete;  // owns the file of the temporary name
  OutputFile& operator=(const OutputFile&) = delete;

  /// Removes what was written, unless it is committed.
  ~OutputFile();

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
  std::string temporary_;
  std::string buffer_;
  std::uint64_t size_ = 0;
  int error_ = 0;  // the first one
  libtrain::detail::FileDescriptor descriptor_;
  bool committed_ = false;
};

}  // namespace libtrain::data::detail
