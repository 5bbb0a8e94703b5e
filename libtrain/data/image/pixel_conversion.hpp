#pragma once

#include <cstddef>
#include <cstdint>

namespace libtrain::data::detail {

/// Converts a run of pixels. `from` and `to` do not overlap. All of them compute what Pillow does (Convert.c), exactly.
using ConvertPixels = void (*)(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);

void copy_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);
void copy_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);

/// ITU-R 601-2 luma in 16-bit fixed point, rounded: Pillow's L24.
void rgb_to_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);

/// Cyan, magenta, yellow and black as libjpeg gives them. Pillow takes them for inverted, as Adobe's programs write
/// them, whether or not the file has Adobe's marker; a colour is then (255 - K) - (255 - K) C / 255, rounded.
void inverted_cmyk_to_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);
void inverted_cmyk_to_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);

/// 16-bit grey in the machine's byte order. Pillow keeps the values up to 255 and clips the others to 255.
void clip_grey16_to_grey(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);
void clip_grey16_to_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels);

}  // namespace libtrain::data::detail
