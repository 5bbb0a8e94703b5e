#include <libtrain/data/image/detail/png.hpp>

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include <spng.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/decode_options.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/image_header.hpp>

namespace libtrain::data::detail {

namespace {

// For text, profiles and other ancillary chunks, compressed or not.
constexpr std::size_t kChunkLimit = std::size_t{16} << 20;

// The largest ratio of deflate's decompressed and compressed size.
constexpr std::uint64_t kMaxInflation = 1032;

// The file, which libspng reads in pieces, so that errors can name the offset.
struct Input {
  std::span<const std::byte> file = {};
  std::size_t position = 0;
};

int read_input(spng_ctx* /*context*/, void* user, void* to, std::size_t count) {
  auto& input = *static_cast<Input*>(user);
  if (count > input.file.size() - input.position) return SPNG_IO_EOF;
  std::memcpy(to, input.file.data() + input.position, count);
  input.position += count;
  return 0;
}

// The format of libspng's rows, and their conversion.
struct RowFormat {
  int format = SPNG_FMT_RGB8;
  std::size_t pixel_bytes = 3;
  ConvertPixels convert = copy_rgb;
};

RowFormat row_format_of(const PngHeader& header, int channels) {
  if (header.color == PngColor::grey && header.bit_depth == 16) {
    return {
        .format = SPNG_FMT_PNG, .pixel_bytes = 2, .convert = channels == 1 ? clip_grey16_to_grey : clip_grey16_to_rgb};
  }
  if (header.color == PngColor::grey && channels == 1) {
    return {.format = SPNG_FMT_G8, .pixel_bytes = 1, .convert = copy_grey};
  }
  return {.format = SPNG_FMT_RGB8, .pixel_bytes = 3, .convert = channels == 1 ? rgb_to_grey : copy_rgb};
}

struct FreeContext {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};

class PngReader {
 public:
  PngReader(std::span<const std::byte> file, const PngHeader& header, const DecodeOptions& options)
      : options_(options), header_(header), input_{.file = file} {
    check_pixels("PNG", options, static_cast<std::uint64_t>(header_.width), static_cast<std::uint64_t>(header_.height));
    check_length();
    crop_ = crop_of(options, header_.width, header_.height);
    format_ = row_format_of(header_, options.channels);
    context_.reset(spng_ctx_new(0));
    if (context_ == nullptr) throw std::bad_alloc();
    check(spng_set_image_limits(context_.get(), static_cast<std::uint32_t>(header_.width),
                                static_cast<std::uint32_t>(header_.height)));
    check(spng_set_chunk_limits(context_.get(), kChunkLimit, kChunkLimit));
    check(spng_set_png_stream(context_.get(), read_input, &input_));
  }
  PngReader(const PngReader&) = delete;  // libspng points to the input
  PngReader& operator=(const PngReader&) = delete;

  void read(Image& to) {
    shape(to, crop_.width, crop_.height, options_.channels);
    if (header_.interlaced) {
      read_interlaced(to);
    } else {
      read_rows(to);
    }
  }

 private:
  // So that no memory is allocated for pixels that do not exist.
  void check_length() const {
    const auto bits = static_cast<std::uint64_t>(header_.channels() * header_.bit_depth);
    const std::uint64_t pixels = static_cast<std::uint64_t>(header_.width) * static_cast<std::uint64_t>(header_.height);
    const std::uint64_t least = pixels / 8 * bits / kMaxInflation;
    if (least <= input_.file.size()) return;
    fail_image("PNG", options_.name, input_.file.size(),
               text("expected at least ", least, " bytes for ", header_.width, " x ", header_.height,
                    " pixels, found the end of the file (the file is truncated)"));
  }

  std::size_t row_bytes() const { return static_cast<std::size_t>(header_.width) * format_.pixel_bytes; }

  void read_rows(Image& to) {
    check(spng_decode_image(context_.get(), nullptr, 0, format_.format, SPNG_DECODE_PROGRESSIVE));
    std::vector<std::uint8_t> row(row_bytes());
    for (int y = 0; y < crop_.y + crop_.height; ++y) {
      const int status = spng_decode_row(context_.get(), row.data(), row.size());
      const bool last = y == header_.height - 1;
      if (status != (last ? SPNG_EOI : SPNG_OK)) check(status);
      if (y >= crop_.y) store(row.data(), to.row(y - crop_.y));
    }
  }

  // The rows are in seven passes over the image.
  void read_interlaced(Image& to) {
    std::vector<std::uint8_t> image(row_bytes() * static_cast<std::size_t>(header_.height));
    check(spng_decode_image(context_.get(), image.data(), image.size(), format_.format, 0));
    for (int y = 0; y < crop_.height; ++y) {
      store(image.data() + static_cast<std::size_t>(crop_.y + y) * row_bytes(), to.row(y));
    }
  }

  void store(const std::uint8_t* row, std::uint8_t* to) const {
    format_.convert(row + static_cast<std::size_t>(crop_.x) * format_.pixel_bytes, to,
                    static_cast<std::size_t>(crop_.width));
  }

  void check(int status) const {
    if (status == SPNG_OK) return;
    if (status == SPNG_IO_EOF) {
      fail_image("PNG", options_.name, input_.file.size(),
                 "expected more data, found the end of the file (the file is truncated)");
    }
    fail_image("PNG", options_.name, input_.position,
               text("expected data that libspng can decode, found: ", spng_strerror(status)));
  }

  const DecodeOptions& options_;
  const PngHeader& header_;
  Input input_;
  Crop crop_ = {};
  RowFormat format_ = {};
  std::unique_ptr<spng_ctx, FreeContext> context_;
};

}  // namespace

void decode_png(std::span<const std::byte> file, const PngHeader& header, const DecodeOptions& options, Image& to) {
  check_options(options);
  if (options.scale_denominator != 1) {
    throw UsageError(text("DecodeOptions::scale_denominator is ", options.scale_denominator, " for the PNG '",
                          options.name, "', expected 1: only JPEGs can be scaled while they are decoded."));
  }
  PngReader(file, header, options).read(to);
}

}  // namespace libtrain::data::detail
