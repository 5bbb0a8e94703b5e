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

/// Decodes JPEGs to the very pixels that Pillow's convert("RGB") or convert("L") gives: accurate integer transform,
/// smooth ("fancy") chroma upsampling, grey repeated in three channels, CMYK and YCCK taken for inverted (see
/// decode_options.hpp), an orientation in EXIF data ignored. Baseline, extended and progressive files of 8 bits with
/// 1, 3 or 4 components, Huffman or arithmetic coding.
///
/// A rectangle is decoded without the inverse transforms left and right of it and above it, and without the entropy
/// decoding below it, and has exactly the pixels that it has in the whole picture.
///
/// Keeps its working memory between pictures; used by one thread at a time. Memory: that of the pixels wanted and a few
/// rows, a copy of the scan, tables of 70 KB, and for files with several scans 2 bytes a coefficient instead of the
/// copy.
///
/// Both functions throw UsageError for options that do not fit each other or the picture, and EnvironmentError (name,
/// byte offset, what was expected and what was found) for a file that is truncated, damaged in more places than
/// DecodeOptions::maximum_warnings, has more pixels than allowed, or is not such a JPEG. A file whose data lacks only
/// the last marker is truncated, too, as for Pillow.
class JpegDecoder {
 public:
  Image decode(std::span<const std::byte> file, const DecodeOptions& options = {});

  /// Into an image whose memory is used again. After an error it has any content.
  void decode(std::span<const std::byte> file, const DecodeOptions& options, Image& to);

  /// How many damaged places libjpeg met in the last picture that was decoded, and filled as it could.
  long damaged_places() const { return damaged_places_; }

 private:
  ScanDecoder scan_decoder_;
  std::vector<std::uint8_t> row_;  // as libjpeg gives it, where that differs from what is wanted
  long damaged_places_ = 0;
};

/// JpegDecoder::decode() with a decoder of its own.
Image decode_jpeg(std::span<const std::byte> file, const DecodeOptions& options = {});

/// How many samples of colour a JPEG keeps for those of brightness.
enum class ChromaSubsampling {
  yuv444,  ///< 4:4:4: as many
  yuv420,  ///< 4:2:0: half as many in either direction
};

struct JpegEncoderOptions {
  int quality = 95;                                           ///< 1 to 100, as libjpeg counts it
  ChromaSubsampling subsampling = ChromaSubsampling::yuv420;  ///< grey pictures have no chroma
  int restart_interval = 0;                                   ///< MCUs between restart markers, up to 65535; 0: none
};

/// The picture as a baseline JPEG (JFIF) with optimised Huffman tables, grey or YCbCr.
///
/// Throws UsageError for options outside their range, a picture that is empty, does not fit its bytes, or has a side
/// above 65500 pixels; EnvironmentError where libjpeg gives up. Any thread may call it. Memory: 2 bytes a sample and
/// the result.
std::vector<std::byte> encode_jpeg(const Image& image, const JpegEncoderOptions& options = {});

/// Whether JpegDecoder reads scans with FastScan. It does unless check_fast_scan(), at the first call, finds that the
/// libjpeg that was loaded makes other pixels of them. Any thread may call it.
bool uses_fast_scan();

/// A way to decode JPEGs. Nothing: it refuses the file.
using DecodeWay = std::function<std::optional<Image>(std::span<const std::byte> file, const DecodeOptions& options)>;

/// Whether `fast` makes of a few small JPEGs, whole, scaled and in parts, the pixels that `plain` makes of them. Logs a
/// warning where it does not.
///
/// FastScan goes behind libjpeg's public interface, and the libjpeg that a program loads need not be the one that it
/// was built with: what is wrong then must not become pixels to train on.
bool check_fast_scan(const DecodeWay& fast, const DecodeWay& plain);

}  // namespace libtrain::data::detail
