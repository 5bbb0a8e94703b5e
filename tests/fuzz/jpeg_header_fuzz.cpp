// The header of a JPEG or PNG picture: every byte sequence is read or refused by an EnvironmentError.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/image_header.hpp>

#include <tests/data/image/png_writer.hpp>
#include <tests/fuzz/jpeg_seeds.hpp>
#include <tests/fuzz/target.hpp>

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds = jpeg_seeds();
  for (const auto& recipe : libtrain::test::all_png_recipes()) {
    if (recipe.bit_depth == 8) seeds.push_back(text_of(libtrain::test::write_png(recipe).file));
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    constexpr std::uint64_t kMaxPixels = 1 << 20;
    libtrain::data::read_image_header(std::as_bytes(std::span(data, size)), "fuzzed", kMaxPixels);
    ++read_inputs;
  } catch (const libtrain::EnvironmentError&) {
  }
  return 0;
}
