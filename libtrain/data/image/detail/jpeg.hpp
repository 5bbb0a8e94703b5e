#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <libtrain/data/image/decode_options.hpp>
#include <libtrain/data/image/detail/scan_decoder.hpp>
#include <libtrain/data/image/image.hpp>

namespace libtrain::data::detail {

/// Decodes JPEGs to the same pixels as Pillow's convert("RGB") or convert("L"): accurate integer transform, smooth
/// ("fancy") chroma upsampling, grey repeated in three channels, CMYK and YCCK treated as inverted (see
/// decode_options.hpp), EXIF orientation ignored. Baseline, extended and progressive files of 8 bits with 1, 3 or 4
/// components, Huffman or arithmetic coding.
///
/// A rectangle is decoded without the inverse transforms left, right and above of it, and without the entropy decoding
/// below it. Its pixels are exactly those of the whole image.
///
/// Keeps its working memory between images; used by one thread at a time. Memory: the decoded pixels and a few rows, a
/// copy of the scan, tables of 70 KB, and for files with several scans 2 bytes per coefficient instead of the copy.
///
/// Both functions throw UsageError for options that contradict each other or the image, and EnvironmentError (name,
/// byte offset, what was expected and what was found) for a file that is truncated, damaged in more places than
/// DecodeOptions::maximum_warnings, has more pixels than allowed, or is not such a JPEG. As for Pillow, a file that
/// lacks only the last marker is truncated.
class JpegDecoder {
 public:
  Image decode(std::span<const std::byte> file, const DecodeOptions& options = {});

  /// Reuses the memory of `to`. After an error `to` has unspecified content.
  void decode(std::span<const std::byte> file, const DecodeOptions& options, Image& to);

  /// The number of damaged places that libjpeg filled in the last image.
  long damaged_places() const { return damaged_places_; }

 private:
  ScanDecoder scan_decoder_;
  std::vector<std::uint8_t> row_;  // of libjpeg, if it must be cropped or converted
  long damaged_places_ = 0;
};

/// The resolution of a JPEG's chroma.
enum class ChromaSubsampling {
  yuv444,  ///< 4:4:4: that of the luma
  yuv420,  ///< 4:2:0: half of it in both directions
};

struct JpegEncoderOptions {
  int quality = 95;                                           ///< 1 to 100, as libjpeg counts it
  ChromaSubsampling subsampling = ChromaSubsampling::yuv420;  ///< grey images have no chroma
  int restart_interval = 0;                                   ///< MCUs between restart markers, up to 65535; 0: none
};

/// The image as a baseline JPEG (JFIF) with optimised Huffman tables, grey or YCbCr.
///
/// Throws UsageError for options outside their range, and for an image that is empty, does not match its bytes, or has
/// a side above 65500 pixels; EnvironmentError if libjpeg fails. Any thread may call it. Memory: 2 bytes per sample and
/// the result.
std::vector<std::byte> encode_jpeg(const Image& image, const JpegEncoderOptions& options = {});

/// Whether JpegDecoder reads scans with FastScan: unless check_fast_scan(), which the first call runs, finds that its
/// pixels differ with the loaded libjpeg. Any thread may call it.
bool uses_fast_scan();

/// Decodes a JPEG; returns std::nullopt if it does not support the file.
using DecodeWay = std::function<std::optional<Image>(std::span<const std::byte> file, const DecodeOptions& options)>;

/// Whether `fast` and `plain` decode a few small JPEGs, whole, scaled and in parts, to the same pixels. Logs a warning
/// if they do not.
///
/// FastScan uses internals of libjpeg, and the libjpeg that a program loads may differ from the one that it was built
/// with. Wrong pixels must not be used for training.
bool check_fast_scan(const DecodeWay& fast, const DecodeWay& plain);

}  // namespace libtrain::data::detail
