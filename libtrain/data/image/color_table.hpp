#pragma once

#include <array>
#include <cstdint>

#include <libtrain/data/image/image.hpp>

namespace libtrain::data::detail {

/// What becomes of each value of a byte.
using ColorTable = std::array<std::uint8_t, 256>;

/// Looks all bytes of the picture up in the table.
inline void apply(Image& image, const ColorTable& table) {
  for (auto& byte : image.pixels) byte = table[byte];
}

}  // namespace libtrain::data::detail
