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

/// libjpeg reports errors by calling a function that must not return. An exception through its C frames is undefined,
/// so the function jumps back here by longjmp. Objects that the jump skips are not destroyed.
struct JpegErrors {
  jpeg_error_mgr manager = {};  ///< first, because libjpeg's pointer to it is cast to a pointer to this struct
  std::jmp_buf escape = {};
  long warnings = 0;  ///< damaged places so far, without warnings that do not affect pixels
  long maximum_warnings = 0;
  bool scan_refused = false;           ///< see FastScan
  char message[JMSG_LENGTH_MAX] = {};  ///< libjpeg's, of the error
};

/// Initialises `errors` and returns the pointer for libjpeg.
jpeg_error_mgr* start_errors(JpegErrors& errors, long maximum_warnings);

/// Calls step(argument), and returns false if libjpeg fails in it.
bool run_guarded(JpegErrors& errors, void (*step)(const void*), const void* argument);

/// The same for a lambda. It may call libjpeg and other functions; none of them may throw or have variables with
/// destructors.
template <typename Step>
bool guarded(JpegErrors& errors, const Step& step) {
  static_assert(std::is_trivially_destructible_v<Step>);
  return run_guarded(errors, [](const void* argument) { (*static_cast<const Step*>(argument))(); }, &step);
}

/// A libjpeg decompressor that reads a file in memory.
///
/// A new one is created for every image, which costs little compared with decoding: libjpeg would keep the quantisation
/// and Huffman tables for the next image, and a file without tables would decode differently depending on the previous
/// file.
class JpegReader {
 public:
  /// `file` and `name` must outlive the reader.
  JpegReader(std::span<const std::byte> file, const std::string& name, long maximum_warnings);
  ~JpegReader();
  JpegReader(const JpegReader&) = delete;  // libjpeg points into it
  JpegReader& operator=(const JpegReader&) = delete;

  jpeg_decompress_struct& info() { return info_; }
  JpegErrors& errors() { return errors_; }

  /// guarded() that throws EnvironmentError if libjpeg fails.
  template <typename Step>
  void run(const Step& step) {
    if (!guarded(errors_, step)) fail();
  }

  /// The same, but returns false if FastScan refused the scan.
  template <typename Step>
  bool try_run(const Step& step) {
    if (guarded(errors_, step)) return true;
    if (!errors_.scan_refused) fail();
    return false;
  }

  /// Throws EnvironmentError if the file is too short for the image size in its header, so that no memory is allocated
  /// for pixels that do not exist. Requires that the header has been read.
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

/// The output of libjpeg. Its C callbacks can grow it.
struct JpegMemory {
  jpeg_destination_mgr manager = {};  ///< first, as in JpegErrors
  JOCTET* bytes = nullptr;
  std::size_t capacity = 0;
  std::size_t size = 0;  ///< set at the end
};

/// A libjpeg compressor that writes to memory. It reports errors to those of a reader, so that one guarded step can use
/// both.
class JpegWriter {
 public:
  explicit JpegWriter(JpegReader& reader);
  ~JpegWriter();
  JpegWriter(const JpegWriter&) = delete;  // libjpeg points into it
  JpegWriter& operator=(const JpegWriter&) = delete;

  jpeg_compress_struct& info() { return info_; }

  /// The output, once jpeg_finish_compress() has been called.
  std::span<const std::byte> bytes() const { return {reinterpret_cast<const std::byte*>(memory_.bytes), memory_.size}; }

 private:
  JpegMemory memory_ = {};
  jpeg_compress_struct info_ = {};
};

}  // namespace libtrain::data::detail
