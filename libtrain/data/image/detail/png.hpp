#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <libtrain/data/image/decode_options.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/image_header.hpp>

namespace libtrain::data::detail {

/// Decodes a PNG to the very pixels that Pillow's convert("RGB") or convert("L") gives: grey and palettes become
/// colours, alpha and a transparent colour are dropped without blending, gamma and profiles are ignored. Of 16-bit
/// samples the upper byte is taken, except in grey without alpha, where Pillow clips the value itself to 255.
///
/// All rows down to the end of the rectangle wanted are decompressed; of an interlaced file the whole picture is, in
/// memory. Text and profiles of more than 16 MiB are refused. Any thread may call it.
///
/// Throws UsageError for options that do not fit each other or the picture, or that want it scaled, and
/// EnvironmentError (name, byte offset, what was expected and what was found) for a file that is truncated, damaged, or
/// has more pixels than allowed. The byte offset is where reading stood, at most 8 KiB behind the damage.
Image decode_png(std::span<const std::byte> file, const DecodeOptions& options = {});

/// Of a file whose header was read before, into an image whose memory is used again. After an error it has any content.
void decode_png(std::span<const std::byte> file, const PngHeader& header, const DecodeOptions& options, Image& to);

/// The picture as a PNG of 8 bits, grey or RGB, not interlaced. Throws UsageError for a picture that is empty or does
/// not fit its bytes, EnvironmentError where libspng gives up. Any thread may call it.
std::vector<std::byte> encode_png(const Image& image);

}  // namespace libtrain::data::detail
