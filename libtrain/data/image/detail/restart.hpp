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

/// How to add restart markers. They cut the entropy-coded data of a JPEG into segments that can be decoded by
/// themselves (ITU-T T.81, E.1.4): with one every few MCUs, a rectangle of the picture needs only the segments that it
/// touches.
struct RestartOptions {
  std::string name = "in memory";  ///< how messages name the file
  int interval = 4;                ///< MCUs of a segment wanted, 4 to 8: smaller ones save more and cost more bytes
  std::uint64_t maximum_pixels = kMaxPixels;
};

/// The interval nearest to `wanted` among those from 4 to 8 that divide a row of so many MCUs, the smaller of two;
/// where none does, the smallest divisor above 8: at worst a whole row. Both numbers must be positive.
int choose_restart_interval(int mcus_per_row, int wanted);

/// The same JPEG with restart markers: the coefficients, the tables to dequantise them and all other markers (Exif,
/// ICC, Adobe, comments) are those of `file`; the Huffman tables are optimised. Every decoder reads it, to the same
/// pixels.
///
/// Nothing where `file` had better stay as it is: progressive, arithmetic-coded, not of 8 bits, in more than one scan,
/// with damaged places, or with such markers already. Throws UsageError for an interval outside 4 to 8,
/// EnvironmentError as JpegDecoder does. Any thread may call it. Memory: 2 bytes a coefficient and the result.
std::optional<std::vector<std::byte>> add_restart_markers(std::span<const std::byte> file,
                                                          const RestartOptions& options = {});

/// Where the segments of a JPEG lie.
struct RestartIndex {
  int interval = 0;          ///< MCUs of a segment
  int segments_per_row = 0;  ///< of a row of MCUs
  int rows = 0;              ///< of MCUs

  /// Offsets in the file of the segments' first bytes, row by row, and at last that of what follows the end of the
  /// image. A marker of two bytes ends every segment.
  std::vector<std::uint32_t> starts = {};
};

/// Fills `index`, reusing its memory, and returns true where all restart markers of `file`, whose header is `header`,
/// are in their places and cut its rows of MCUs into segments of equal length. Otherwise returns false and leaves
/// anything in it: decode such a file as any other. Never throws for what is in the file, all of which it reads.
bool find_restart_segments(std::span<const std::byte> file, const JpegHeader& header, RestartIndex& index);

/// Writes to `part`, whose memory is reused, a JPEG of its own: the segments of `file` that hold `crop` and the pixels
/// around it that chroma upsampling looks at, behind the headers of `file` with another height and width. Returns where
/// in that picture the rectangle lies: decoding `part` and cropping it so gives the pixels of `crop` in `file`,
/// exactly.
///
/// `index` comes from find_restart_segments() for this very file and header; `crop` is in pixels of the picture scaled
/// by 1 / `scale_denominator` and inside of it. Nothing where the rectangle needs all segments. Throws EnvironmentError
/// as parse_jpeg_header() does. Any thread may call it.
std::optional<Crop> cut_restart_segments(std::span<const std::byte> file, const JpegHeader& header,
                                         const RestartIndex& index, const Crop& crop, int scale_denominator,
                                         std::vector<std::byte>& part);

}  // namespace libtrain::data::detail
