#include <libtrain/data/image/encode_png.hpp>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string_view>

#include <spng.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/output_file.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

struct FreeEncoder {
  void operator()(spng_ctx* encoder) const { spng_ctx_free(encoder); }
};

struct FreePng {
  void operator()(std::byte* memory) const { std::free(memory); }
};

void require_encoded(int status, const Image& image) {
  if (status == SPNG_OK) return;
  throw EnvironmentError(text("An image of ", image.width, " x ", image.height,
                              " pixels could not be encoded as a PNG: ", spng_strerror(status), "."));
}

}  // namespace

std::vector<std::byte> encode_png(const Image& image) {
  detail::require_valid_image(image);
  const std::unique_ptr<spng_ctx, FreeEncoder> encoder(spng_ctx_new(SPNG_CTX_ENCODER));
  if (encoder == nullptr) throw std::bad_alloc();
  require_encoded(spng_set_option(encoder.get(), SPNG_ENCODE_TO_BUFFER, 1), image);
  spng_ihdr header{};
  header.width = static_cast<std::uint32_t>(image.width);
  header.height = static_cast<std::uint32_t>(image.height);
  header.bit_depth = 8;
  header.color_type =
      static_cast<std::uint8_t>(image.channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR);
  require_encoded(spng_set_ihdr(encoder.get(), &header), image);
  require_encoded(
      spng_encode_image(encoder.get(), image.pixels.data(), image.pixels.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE),
      image);
  std::size_t size = 0;
  int status = SPNG_OK;
  const std::unique_ptr<std::byte, FreePng> memory(
      static_cast<std::byte*>(spng_get_png_buffer(encoder.get(), &size, &status)));
  require_encoded(status, image);
  return {memory.get(), memory.get() + size};
}

void write_png(const Image& image, const std::string& path) {
  const auto png = encode_png(image);
  libtrain::detail::OutputFile file(path);
  file.write(std::string_view{reinterpret_cast<const char*>(png.data()), png.size()});
  file.commit();
}

}  // namespace libtrain::data
