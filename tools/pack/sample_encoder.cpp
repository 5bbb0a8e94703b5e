#include <tools/pack/sample_encoder.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/decode_image.hpp>
#include <libtrain/data/image/detail/jpeg.hpp>
#include <libtrain/data/image/detail/restart.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/resize.hpp>

namespace libtrain::pack {

namespace {

std::span<const std::byte> bytes_of(const std::string& file) {
  return std::as_bytes(std::span{file});
}

std::string string_of(const std::vector<std::byte>& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// As torchvision's Resize does: the longer side is rounded down.
data::Image shrink(const data::Image& image, int short_side, const std::string& name) {
  const int shorter = std::min(image.width, image.height);
  const auto shrunk = [&](int side) { return static_cast<int>(std::int64_t{side} * short_side / shorter); };
  if (shrunk(std::max(image.width, image.height)) > kLargestJpegSide) {
    throw EnvironmentError(text("Image '", name, "': expected a longer side of at most ", kLargestJpegSide,
                                " pixels when the shorter one has ", short_side, ", found ", image.width, " x ",
                                image.height, " pixels."));
  }
  data::Image small{.width = shrunk(image.width), .height = shrunk(image.height), .channels = image.channels};
  small.pixels.resize(small.row_bytes() * static_cast<std::size_t>(small.height));
  data::Resizer().resize(data::view(image), {}, data::target_of(small));
  return small;
}

void replace(EncodedSample& sample, const data::Image& small, int quality) {
  sample.bytes = string_of(data::detail::encode_jpeg(small, {.quality = quality}));
  sample.format = data::ImageFormat::jpeg;
  sample.width = small.width;
  sample.height = small.height;
  sample.is_resized = true;
}

}  // namespace

EncodedSample encode_sample(std::string file, const std::string& name, const EncodingOptions& options) {
  const data::ImageHeader header = data::read_image_header(bytes_of(file), name);
  EncodedSample sample{
      .bytes = std::move(file), .format = header.format, .width = header.width, .height = header.height};

  const bool is_large = options.short_side && std::min(header.width, header.height) > *options.short_side;
  if (is_large || options.check == ImageCheck::decode) {
    const int channels = header.channels <= 2 ? 1 : 3;  // grey images, with or without alpha, stay grey
    const data::Image image = data::decode_image(bytes_of(sample.bytes), {.name = name, .channels = channels});
    if (is_large) replace(sample, shrink(image, *options.short_side, name), options.quality);
  }

  if (options.restart_interval && sample.format == data::ImageFormat::jpeg) {
    const auto marked = data::detail::add_restart_markers(bytes_of(sample.bytes),
                                                          {.name = name, .interval = *options.restart_interval});
    if (marked) sample.bytes = string_of(*marked);
    sample.has_new_markers = marked.has_value();
  }
  return sample;
}

}  // namespace libtrain::pack
