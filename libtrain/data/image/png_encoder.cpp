#include <libtrain/data/image/png_encoder.hpp>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include <spng.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/image_view.hpp>

namespace libtrain::data {

namespace {

struct FreeContext {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};

void check(int status, const Image& image) {
  if (status == SPNG_OK) return;
  throw EnvironmentError(text("A picture of ", image.width, " x ", image.height,
                              " pixels could not be encoded as a PNG: ", spng_strerror(status), "."));
}

}  // namespace

std::vector<std::byte> encode_png(const Image& image) {
  detail::require_picture(image);
  const std::unique_ptr<spng_ctx, FreeContext> context(spng_ctx_new(SPNG_CTX_ENCODER));
  if (context == nullptr) throw std::bad_alloc();
  check(spng_set_option(context.get(), SPNG_ENCODE_TO_BUFFER, 1), image);
  spng_ihdr header{};
  header.width = static_cast<std::uint32_t>(image.width);
  header.height = static_cast<std::uint32_t>(image.height);
  header.bit_depth = 8;
  header.color_type =
      static_cast<std::uint8_t>(image.channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR);
  check(spng_set_ihdr(context.get(), &header), image);
  check(spng_encode_image(context.get(), image.pixels.data(), image.pixels.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE),
        image);
  std::size_t size = 0;
  int status = SPNG_OK;
  const std::unique_ptr<std::byte, FreeMemory> memory(
      static_cast<std::byte*>(spng_get_png_buffer(context.get(), &size, &status)));
  check(status, image);
  return {memory.get(), memory.get() + size};
}

}  // namespace libtrain::data
