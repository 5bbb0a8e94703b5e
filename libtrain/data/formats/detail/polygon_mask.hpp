#pragma once

#include <cstdint>
#include <span>

#include <libtrain/data/formats/run_length.hpp>

namespace libtrain::data::detail {

/// The maximum absolute value of a coordinate: five times that must fit 32 bits, and each pixel of an outline takes
/// time.
inline constexpr double kMaxCoordinate = 1 << 20;

/// The mask of a closed polygon x0, y0, x1, y1, ... in an image, bit for bit the same as pycocotools' frPyObjects
/// (rleFrPoly): corners are rounded to a grid five times as fine, edges are walked on it, and a column changes between
/// zeros and ones where the outline crosses the column's middle. Parts outside the image are cut off.
/// Throws UsageError for an odd number of coordinates or none, for an image without pixels or with more than
/// kMaxMaskPixels; EnvironmentError for a coordinate beyond kMaxCoordinate or not a number. Any thread.
RunLength polygon_mask(std::span<const double> polygon, std::uint32_t height, std::uint32_t width);

}  // namespace libtrain::data::detail
