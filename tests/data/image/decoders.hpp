#pragma once

#include <cstddef>
#include <span>

#include <libtrain/data/image/detail/jpeg.hpp>
#include <libtrain/data/image/detail/png.hpp>

namespace libtrain::test {

inline data::Image decode_jpeg(std::span<const std::byte> file, const data::DecodeOptions& options = {}) {
  return data::detail::JpegDecoder().decode(file, options);
}

inline data::Image decode_png(std::span<const std::byte> file, const data::DecodeOptions& options = {}) {
  data::Image image;
  data::detail::decode_png(file, data::parse_png_header(file, options.name), options, image);
  return image;
}

}  // namespace libtrain::test
