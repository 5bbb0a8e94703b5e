#include <libtrain/data/image/decode_image.hpp>

#include <optional>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/detail/jpeg.hpp>
#include <libtrain/data/image/detail/png.hpp>
#include <libtrain/data/image/detail/restart.hpp>

namespace libtrain::data {

struct ImageDecoder::Parts {
  detail::JpegDecoder jpeg = {};
  detail::RestartIndex index = {};
  std::vector<std::byte> part = {};  // a JPEG of the segments that are needed
  DecodeOptions part_options = {};

  bool cut(std::span<const std::byte> file, const JpegHeader& header, const DecodeOptions& options);
};

ImageDecoder::ImageDecoder() : parts_(std::make_unique<Parts>()) {}
ImageDecoder::ImageDecoder(ImageDecoder&&) noexcept = default;
ImageDecoder& ImageDecoder::operator=(ImageDecoder&&) noexcept = default;
ImageDecoder::~ImageDecoder() = default;

Image ImageDecoder::decode(std::span<const std::byte> file, const DecodeOptions& options) {
  detail::check_options(options);
  Image image;
  decode(file, read_image_header(file, options.name, options.maximum_pixels), options, image);
  return image;
}

void ImageDecoder::decode(std::span<const std::byte> file, const ImageHeader& header, const DecodeOptions& options,
                          Image& to) {
  if (header.png) return detail::decode_png(file, *header.png, options, to);
  try {
    if (parts_->cut(file, header.jpeg.value(), options)) {
      return parts_->jpeg.decode(parts_->part, parts_->part_options, to);
    }
  } catch (const EnvironmentError&) {
    // Decoding the whole file reports the offset of the damage in it, or succeeds without noticing the damage.
  }
  parts_->jpeg.decode(file, options, to);
}

// Returns whether decoding `part` with `part_options` gives what `options` want of `file`, and sets both.
bool ImageDecoder::Parts::cut(std::span<const std::byte> file, const JpegHeader& header, const DecodeOptions& options) {
  if (!options.crop || header.restart_interval == 0) return false;
  detail::check_options(options);
  const int scale = options.scale_denominator;
  const Crop crop = detail::crop_of(options, detail::scaled(header.width, scale), detail::scaled(header.height, scale));
  if (!detail::find_restart_segments(file, header, index)) return false;
  const std::optional<Crop> crop_of_part = detail::cut_restart_segments(file, header, index, crop, scale, part);
  if (!crop_of_part) return false;
  part_options = options;
  part_options.crop = crop_of_part;
  return true;
}

Image decode_image(std::span<const std::byte> file, const DecodeOptions& options) {
  return ImageDecoder().decode(file, options);
}

}  // namespace libtrain::data
