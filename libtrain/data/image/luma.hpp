#pragma once

#include <cstdint>

namespace libtrain::data::detail {

/// How bright a colour is: ITU-R 601-2 in 16-bit fixed point, rounded, as Pillow's L24 (Convert.c) has it.
constexpr std::uint8_t luma(unsigned red, unsigned green, unsigned blue) {
  return static_cast<std::uint8_t>((red * 19595U + green * 38470U + blue * 7471U + 0x8000U) >> 16);
}

}  // namespace libtrain::data::detail
