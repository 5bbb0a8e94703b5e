#include <tests/data/image/png_writer.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>

#include <spng.h>

namespace libtrain::test {

namespace {

using data::PngColor;
using Samples = std::vector<unsigned int>;

int channels_of(PngColor color) {
  return data::PngHeader{.color = color}.channels();
}

Samples random_samples(const PngRecipe& recipe, std::mt19937& random) {
  const auto count = static_cast<std::size_t>(recipe.width * recipe.height * channels_of(recipe.color));
  Samples samples;
  for (std::size_t i = 0; i < count; ++i) {
    // Values of 16 bits up to 255 are kept, and larger ones are clipped: both should occur.
    const auto limit = recipe.bit_depth == 16 && random() % 2 == 0 ? 300U : 1U << recipe.bit_depth;
    samples.push_back(static_cast<unsigned int>(random() % limit));
  }
  return samples;
}

// Rows as libspng wants them: samples of less than 8 bits packed from the left, others in the machine's byte order.
std::vector<std::uint8_t> packed(const PngRecipe& recipe, const Samples& samples) {
  const auto row_samples = static_cast<std::size_t>(recipe.width * channels_of(recipe.color));
  const auto depth = static_cast<std::size_t>(recipe.bit_depth);
  const std::size_t row_bytes = (row_samples * depth + 7) / 8;
  std::vector<std::uint8_t> bytes(row_bytes * static_cast<std::size_t>(recipe.height));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::size_t bit = i % row_samples * depth;
    std::uint8_t* place = bytes.data() + i / row_samples * row_bytes + bit / 8;
    if (depth == 16) {
      const auto value = static_cast<std::uint16_t>(samples[i]);
      std::memcpy(place, &value, sizeof value);
    } else {
      *place = static_cast<std::uint8_t>(*place | samples[i] << (8 - depth - bit % 8));
    }
  }
  return bytes;
}

spng_plte random_palette(int bit_depth, std::mt19937& random) {
  spng_plte palette{};
  palette.n_entries = 1U << bit_depth;
  for (std::uint32_t i = 0; i < palette.n_entries; ++i) {
    palette.entries[i].red = static_cast<std::uint8_t>(random() % 256);
    palette.entries[i].green = static_cast<std::uint8_t>(random() % 256);
    palette.entries[i].blue = static_cast<std::uint8_t>(random() % 256);
  }
  return palette;
}

unsigned int byte_of(const PngRecipe& recipe, unsigned int sample) {
  if (recipe.bit_depth < 8) return sample * 255 / ((1U << recipe.bit_depth) - 1);
  if (recipe.bit_depth == 8) return sample;
  return recipe.color == PngColor::grey ? std::min(sample, 255U) : sample >> 8;
}

data::Image expected_rgb(const PngRecipe& recipe, const Samples& samples, const spng_plte& palette) {
  data::Image image{.width = recipe.width, .height = recipe.height};
  const auto channels = static_cast<std::size_t>(channels_of(recipe.color));
  for (std::size_t i = 0; i < samples.size(); i += channels) {
    std::array<unsigned int, 3> rgb{};
    if (recipe.color == PngColor::palette) {
      const auto& entry = palette.entries[samples[i]];
      rgb = {entry.red, entry.green, entry.blue};
    } else {
      for (std::size_t c = 0; c < 3; ++c) rgb.at(c) = byte_of(recipe, samples[channels < 3 ? i : i + c]);
    }
    for (const auto value : rgb) image.pixels.push_back(static_cast<std::uint8_t>(value));
  }
  return image;
}

void require(int status) {
  if (status != SPNG_OK) throw std::runtime_error(spng_strerror(status));
}

std::vector<std::byte> encode(const PngRecipe& recipe, const std::vector<std::uint8_t>& rows, spng_plte palette) {
  spng_ctx* context = spng_ctx_new(SPNG_CTX_ENCODER);
  require(spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1));
  spng_ihdr header{};
  header.width = static_cast<std::uint32_t>(recipe.width);
  header.height = static_cast<std::uint32_t>(recipe.height);
  header.bit_depth = static_cast<std::uint8_t>(recipe.bit_depth);
  header.color_type = static_cast<std::uint8_t>(recipe.color);
  header.interlace_method = static_cast<std::uint8_t>(recipe.interlaced ? SPNG_INTERLACE_ADAM7 : SPNG_INTERLACE_NONE);
  require(spng_set_ihdr(context, &header));
  if (recipe.color == PngColor::palette) require(spng_set_plte(context, &palette));
  require(spng_encode_image(context, rows.data(), rows.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE));
  std::size_t size = 0;
  int status = SPNG_OK;
  void* memory = spng_get_png_buffer(context, &size, &status);
  require(status);
  const auto* bytes = static_cast<const std::byte*>(memory);
  std::vector<std::byte> file(bytes, bytes + size);
  std::free(memory);
  spng_ctx_free(context);
  return file;
}

}  // namespace

WrittenPng write_png(const PngRecipe& recipe) {
  std::mt19937 random(7);
  const Samples samples = random_samples(recipe, random);
  const spng_plte palette = random_palette(std::min(recipe.bit_depth, 8), random);
  return {.file = encode(recipe, packed(recipe, samples), palette), .rgb = expected_rgb(recipe, samples, palette)};
}

std::vector<PngRecipe> all_png_recipes() {
  struct Kind {
    std::string name;
    PngColor color;
    std::vector<int> depths;
  };
  const std::vector<Kind> kinds{{"grey", PngColor::grey, {1, 2, 4, 8, 16}},
                                {"rgb", PngColor::rgb, {8, 16}},
                                {"palette", PngColor::palette, {1, 2, 4, 8}},
                                {"grey, alpha", PngColor::grey_alpha, {8, 16}},
                                {"rgb, alpha", PngColor::rgb_alpha, {8, 16}}};
  std::vector<PngRecipe> recipes;
  for (const auto& kind : kinds) {
    for (const int depth : kind.depths) {
      for (const bool interlaced : {false, true}) {
        recipes.push_back(
            {.name = kind.name + " of " + std::to_string(depth) + (interlaced ? " bits, interlaced" : " bits"),
             .bit_depth = depth,
             .color = kind.color,
             .interlaced = interlaced});
      }
    }
  }
  return recipes;
}

}  // namespace libtrain::test
