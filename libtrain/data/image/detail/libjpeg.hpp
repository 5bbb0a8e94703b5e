#pragma once

// jpeglib.h needs stdio, and jerror.h the settings of jpeglib.h.
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <type_traits>

#include <jpeglib.h>

#include <jerror.h>

namespace libtrain::data::detail {

/// libjpeg reports errors by calling a function that must not return. It is C: an exception through its frames is
/// undefined, so that the function jumps back here. Whatever the jump skips is not destroyed.
struct JpegErrors {
  jpeg_error_mgr manager = {};  ///< first, because libjpeg's pointer to it is taken for a pointer to the whole
  std::jmp_buf escape = {};
  long warnings = 0;  ///< damaged places so far; what libjpeg warns of without having lost any pixels does not count
  long maximum_warnings = 0;
  bool scan_refused = false;           ///< see FastScan
  char message[JMSG_LENGTH_MAX] = {};  ///< libjpeg's, of the error
};

/// Makes `errors` ready, and returns what libjpeg is to be given.
jpeg_error_mgr* start_errors(JpegErrors& errors, long maximum_warnings);

/// Calls step(argument), and returns false where libjpeg gave up in it.
bool run_guarded(JpegErrors& errors, void (*step)(const void*), const void* argument);

/// The same for a lambda. It may call libjpeg and functions that own nothing: neither it nor they may have variables
/// with destructors, or throw.
template <typename Step>
bool guarded(JpegErrors& errors, const Step& step) {
  static_assert(std::is_trivially_destructible_v<Step>);
  return run_guarded(errors, [](const void* argument) { (*static_cast<const Step*>(argument))(); }, &step);
}

/// A libjpeg decompressor that reads a file in memory.
///
/// It is made anew for every picture, which is nothing beside decoding: libjpeg would keep the quantisation and Huffman
/// tables of one picture for the next, so that what a file without them decodes to depended on what its thread read
/// before.
class JpegReader {
 public:
  /// `file` and `name` must outlive the reader.
  JpegReader(std::span<const std::byte> file, const std::string& name, long maximum_warnings);
  ~JpegReader();
  JpegReader(const JpegReader&) = delete;  // libjpeg points into it
  JpegReader& operator=(const JpegReader&) = delete;

  jpeg_decompress_struct& info() { return info_; }
  JpegErrors& errors() { return errors_; }

  /// guarded(), throwing EnvironmentError where libjpeg gives up.
  template <typename Step>
  void run(const Step& step) {
    if (!guarded(errors_, step)) fail();
  }

  /// The same, but returns false where it was FastScan that gave up.
  template <typename Step>
  bool try_run(const Step& step) {
    if (guarded(errors_, step)) return true;
    if (!errors_.scan_refused) fail();
    return false;
  }

  /// Throws EnvironmentError where the file is too short to hold a picture of the size that its header, which has been
  /// read, promises: nothing is to be allocated for pixels that are not there.
  void check_length() const;

 private:
  [[noreturn]] void fail() const;

  std::span<const std::byte> file_;
  const std::string& name_;
  JpegErrors errors_ = {};
  jpeg_source_mgr source_ = {};
  jpeg_progress_mgr progress_ = {};
  jpeg_decompress_struct info_ = {};
};

/// What libjpeg writes to; its callbacks can grow it without C++.
struct JpegMemory {
  jpeg_destination_mgr manager = {};  ///< first, as in JpegErrors
  JOCTET* bytes = nullptr;
  std::size_t capacity = 0;
  std::size_t size = 0;  ///< once all is written
};

/// A libjpeg compressor that writes to memory. Its errors go where those of a reader go, so that one guarded step can
/// use both.
class JpegWriter {
 public:
  explicit JpegWriter(JpegReader& reader);
  ~JpegWriter();
  JpegWriter(const JpegWriter&) = delete;  // libjpeg points into it
  JpegWriter& operator=(const JpegWriter&) = delete;

  jpeg_compress_struct& info() { return info_; }

  /// What was written, once jpeg_finish_compress() has been called.
  std::span<const std::byte> bytes() const { return {reinterpret_cast<const std::byte*>(memory_.bytes), memory_.size}; }

 private:
  JpegMemory memory_ = {};
  jpeg_compress_struct info_ = {};
};

}  // namespace libtrain::data::detail
