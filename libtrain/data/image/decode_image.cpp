#include <libtrain/data/image/decode_image.hpp>

#include <optional>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/png.hpp>
#include <libtrain/data/image/restart.hpp>

namespace libtrain::data {

Image ImageDecoder::decode(std::span<const std::byte> file, const DecodeOptions& options) {
  detail::check_options(options);
  Image image;
  decode(file, read_image_header(file, options.name, options.maximum_pixels), options, image);
  return image;
}

void ImageDecoder::decode(std::span<const std::byte> file, const ImageHeader& header, const DecodeOptions& options,
                          Image& to) {
  if (header.png) return decode_png(file, *header.png, options, to);
  try {
    if (cut_part(file, header.jpeg.value(), options)) return jpeg_.decode(part_, part_options_, to);
  } catch (const EnvironmentError&) {
    // Decoding the whole file tells where in it the damage is, or gets by without noticing.
  }
  jpeg_.decode(file, options, to);
}

// Whether part_ and part_options_ are another way to get what the options want of `file`.
bool ImageDecoder::cut_part(std::span<const std::byte> file, const JpegHeader& header, const DecodeOptions& options) {
  if (!options.crop || header.restart_interval == 0) return false;
  detail::check_options(options);
  const int scale = options.scale_denominator;
  const Crop crop = detail::crop_of(options, detail::scaled(header.width, scale), detail::scaled(header.height, scale));
  if (!find_restart_segments(file, header, index_)) return false;
  const std::optional<Crop> crop_of_part = cut_restart_segments(file, header, index_, crop, scale, part_);
  if (!crop_of_part) return false;
  part_options_ = options;
  part_options_.crop = crop_of_part;
  return true;
}

Image decode_image(std::span<const std::byte> file, const DecodeOptions& options) {
  return ImageDecoder().decode(file, options);
}

}  // namespace libtrain::data
