#pragma once

#include <array>
#include <cstdint>

namespace libtrain::data::detail {

inline constexpr int kGlyphWidth = 5;
inline constexpr int kGlyphHeight = 8;  // seven rows above the base line, and one below it

/// A character's columns from the left; the lowest bit is the top row.
using Glyph = std::array<std::uint8_t, kGlyphWidth>;

/// The glyph of an ASCII character from 32 to 126; a box for any other byte. Any thread.
const Glyph& glyph_of(char character);

}  // namespace libtrain::data::detail
