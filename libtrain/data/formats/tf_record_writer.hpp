#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <libtrain/base/output_file.hpp>

namespace libtrain::data {

/// Writes a TFRecord file, uncompressed, in the layout that index_tf_records() describes. The file appears, complete,
/// with finish(); without that call nothing is left. Errors are EnvironmentError that name the file. Used by one thread
/// at a time.
class TfRecordWriter {
 public:
  /// A file in an existing local folder; finish() replaces one of that name.
  explicit TfRecordWriter(std::string path);

  /// Throws UsageError after finish().
  void write(std::string_view data);

  /// Throws UsageError when called again.
  void finish();

  /// Records written so far.
  std::uint64_t size() const { return size_; }

  /// Bytes of the file so far.
  std::uint64_t bytes() const { return file_.size(); }

 private:
  void require_open() const;

  libtrain::detail::OutputFile file_;
  std::uint64_t size_ = 0;
};

}  // namespace libtrain::data
