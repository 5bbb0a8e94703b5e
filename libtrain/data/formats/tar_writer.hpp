#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <libtrain/base/output_file.hpp>

namespace libtrain::data {

/// Writes a tar archive of regular files: POSIX.1-1988 (ustar), with extended headers of POSIX.1-2001 (pax) for names
/// that are too long or not ASCII and for files of 8 GiB and more. Nothing but names and contents goes into it (time,
/// user and group are 0, the mode is 0644), so that equal contents give equal bytes. The file appears, complete, with
/// finish(); without that call nothing is left. Errors are EnvironmentError that name the file. Used by one thread at a
/// time.
class TarWriter {
 public:
  /// A file in an existing local folder; finish() replaces one of that name.
  explicit TarWriter(std::string path);

  /// Throws UsageError after finish(), and for a name that is empty, longer than 4,096 bytes, ends in '/' or has a zero
  /// byte. Names are not compared with each other.
  void add(std::string_view name, std::string_view data);

  /// Writes the two zero blocks that end an archive. Throws UsageError when called again.
  void finish();

  /// Members written so far.
  std::uint64_t size() const { return size_; }

  /// Bytes of the file so far.
  std::uint64_t bytes() const { return file_.size(); }

 private:
  void require_open() const;
  void require_name(std::string_view name) const;
  void write_padded(std::string_view data);

  libtrain::detail::OutputFile file_;
  std::uint64_t size_ = 0;
};

}  // namespace libtrain::data
