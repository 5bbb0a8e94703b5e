#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <libtrain/data/image/decode_options.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/image_header.hpp>

namespace libtrain::data::detail {

/// How to add restart markers. They divide the entropy-coded data of a JPEG into segments that can be decoded
/// independently (ITU-T T.81, E.1.4): with a marker every few MCUs, a rectangle of the image needs only the segments
/// that it overlaps.
struct RestartOptions {
  std::string name = "in memory";  ///< name of the file in messages
  int interval = 4;                ///< desired MCUs per segment, 4 to 8: smaller ones save time and cost bytes
  std::uint64_t maximum_pixels = kMaxPixels;
};

/// The interval from 4 to 8 that divides a row of MCUs and is nearest to `wanted`, the smaller one of two; if none
/// divides it, the smallest divisor above 8, which may be the whole row. Both numbers must be positive.
int choose_restart_interval(int mcus_per_row, int wanted);

/// The same JPEG with restart markers: coefficients, quantisation tables and all other markers (Exif, ICC, Adobe,
/// comments) are those of `file`; the Huffman tables are optimised. Every decoder decodes it to the same pixels.
///
/// Returns std::nullopt if `file` is not suitable: progressive, arithmetic-coded, not of 8 bits, with more than one
/// scan, with damaged places, or with such markers already. Throws UsageError for an interval outside 4 to 8,
/// EnvironmentError as JpegDecoder does. Any thread may call it. Memory: 2 bytes per coefficient and the result.
std::optional<std::vector<std::byte>> add_restart_markers(std::span<const std::byte> file,
                                                          const RestartOptions& options = {});

/// The places of a JPEG's segments.
struct RestartIndex {
  int interval = 0;          ///< MCUs per segment
  int segments_per_row = 0;  ///< per row of MCUs
  int rows = 0;              ///< of MCUs

  /// The offset of each segment in the file, row by row, and finally the offset after the end of the image. Every
  /// segment ends with a marker of two bytes.
  std::vector<std::uint32_t> starts = {};
};

/// Fills `index`, whose memory it reuses, and returns true if all restart markers of `file` are valid and divide its
/// rows of MCUs into segments of equal length. Otherwise returns false, with an unspecified `index`: decode such a file
/// as a whole. Never throws for the content of the file, all of which it reads. `header` is the file's.
bool find_restart_segments(std::span<const std::byte> file, const JpegHeader& header, RestartIndex& index);

/// Writes a JPEG to `part`, whose memory it reuses: the headers of `file` with another height and width, and the
/// segments that contain `crop` and the pixels around it that chroma upsampling reads. Returns the rectangle in that
/// image: decoding `part` and cropping it to the rectangle gives exactly the pixels of `crop` in `file`.
///
/// `index` must come from find_restart_segments() for the same file and header; `crop` must be inside the image scaled
/// by 1 / `scale_denominator`, in its pixels. Returns std::nullopt if the rectangle needs all segments. Throws
/// EnvironmentError as parse_jpeg_header() does. Any thread may call it.
std::optional<Crop> cut_restart_segments(std::span<const std::byte> file, const JpegHeader& header,
                                         const RestartIndex& index, const Crop& crop, int scale_denominator,
                                         std::vector<std::byte>& part);

}  // namespace libtrain::data::detail
