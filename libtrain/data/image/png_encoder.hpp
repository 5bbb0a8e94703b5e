#pragma once

#include <cstddef>
#include <vector>

#include <libtrain/data/image/image.hpp>

namespace libtrain::data {

/// The picture as a PNG of 8 bits, grey or RGB, not interlaced. Throws UsageError for a picture that is empty or does
/// not fit its bytes, EnvironmentError where libspng gives up. Any thread may call it.
std::vector<std::byte> encode_png(const Image& image);

}  // namespace libtrain::data
