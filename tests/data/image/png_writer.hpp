#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/image_header.hpp>

namespace libtrain::test {

/// A PNG of random pixels, as libspng writes it.
struct PngRecipe {
  std::string name = "rgb";
  int width = 23;
  int height = 17;
  int bit_depth = 8;
  data::PngColor color = data::PngColor::rgb;
  bool interlaced = false;
};

struct WrittenPng {
  std::vector<std::byte> file;
  data::Image rgb;  ///< what Pillow's convert("RGB") makes of the file
};

WrittenPng write_png(const PngRecipe& recipe);

/// All bit depths and colour types, interlaced or not.
std::vector<PngRecipe> all_png_recipes();

}  // namespace libtrain::test
