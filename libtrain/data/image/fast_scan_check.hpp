#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include <libtrain/data/image/decode_options.hpp>
#include <libtrain/data/image/image.hpp>

namespace libtrain::data::detail {

/// A way to decode JPEGs. Nothing: it refuses the file.
using DecodeWay = std::function<std::optional<Image>(std::span<const std::byte> file, const DecodeOptions& options)>;

/// Whether `fast` makes of a few small JPEGs, whole, scaled and in parts, the pixels that `plain` makes of them. Logs a
/// warning where it does not.
///
/// FastScan goes behind libjpeg's public interface, and the libjpeg that a program loads need not be the one that it
/// was built with: what is wrong then must not become pixels to train on.
bool check_fast_scan(const DecodeWay& fast, const DecodeWay& plain);

}  // namespace libtrain::data::detail
