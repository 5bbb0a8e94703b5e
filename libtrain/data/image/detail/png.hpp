#pragma once

#include <cstddef>
#include <span>

#include <libtrain/data/image/decode_options.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/image_header.hpp>

namespace libtrain::data::detail {

/// Decodes a PNG to the same pixels as Pillow's convert("RGB") or convert("L"): grey and palettes become colours, alpha
/// and a transparent colour are dropped without blending, gamma and profiles are ignored. The upper byte of 16-bit
/// samples is used, except for grey without alpha, where Pillow clips the value to 255.
///
/// All rows down to the end of the rectangle are decompressed; of an interlaced file the whole image is, in memory.
/// Text and profiles of more than 16 MiB are an error. Any thread may call it.
///
/// Throws UsageError for options that contradict each other or the image, and for a scale; EnvironmentError (name, byte
/// offset, what was expected and what was found) for a file that is truncated, damaged, or has more pixels than
/// allowed. The byte offset is that of the last byte read, at most 8 KiB after the damage.
///
/// `header` is the file's, and the memory of `to` is reused. After an error `to` has unspecified content.
void decode_png(std::span<const std::byte> file, const PngHeader& header, const DecodeOptions& options, Image& to);

}  // namespace libtrain::data::detail
