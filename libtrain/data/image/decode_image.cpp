#include <libtrain/data/image/decode_image.hpp>

#include <optional>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/decode_png.hpp>
#include <libtrain/data/image/image_error.hpp>
#include <libtrain/data/image/restart_segments.hpp>

namespace libtrain::data {

Image ImageDecoder::decode(std::span<const std::byte> file, const DecodeOptions& options) {
  switch (sniff_image_format(file)) {
    case ImageFormat::png:
      return decode_png(file, options);
    case ImageFormat::jpeg:
      try {
        if (cut_part(file, options)) return jpeg_.decode(part_, part_options_);
      } catch (const EnvironmentError&) {
        // Decoding the whole file tells where in it the damage is, or gets by without noticing.
      }
      return jpeg_.decode(file, options);
    case ImageFormat::unknown:
      break;
  }
  detail::fail_unknown_image(file, options.name);
}

void ImageDecoder::decode_into(std::span<const std::byte> file, const DecodeOptions& options, const PixelRows& to) {
  switch (sniff_image_format(file)) {
    case ImageFormat::png:
      return decode_png_into(file, options, to);
    case ImageFormat::jpeg:
      try {
        if (cut_part(file, options)) return jpeg_.decode_into(part_, part_options_, to);
      } catch (const EnvironmentError&) {
        // As above.
      }
      return jpeg_.decode_into(file, options, to);
    case ImageFormat::unknown:
      break;
  }
  detail::fail_unknown_image(file, options.name);
}

// Whether part_ and part_options_ are another way to get what the options want of `file`.
bool ImageDecoder::cut_part(std::span<const std::byte> file, const DecodeOptions& options) {
  if (!options.crop) return false;
  detail::check_options(options);
  const JpegHeader header = parse_jpeg_header(file, options.name);
  if (header.restart_interval == 0) return false;
  detail::check_pixels("JPEG", options, static_cast<std::uint64_t>(header.width),
                       static_cast<std::uint64_t>(header.height));
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
