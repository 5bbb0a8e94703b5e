#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/image_header.hpp>
#include <libtrain/data/image/restart_index.hpp>

namespace libtrain::data {

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

}  // namespace libtrain::data
