#include <tests/data/image/jpeg_writer.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include <jpeglib.h>

namespace libtrain::test {

namespace {

int components_of(JpegColor color) {
  if (color == JpegColor::grey) return 1;
  return color == JpegColor::cmyk || color == JpegColor::ycck ? 4 : 3;
}

J_COLOR_SPACE input_space(int components) {
  if (components == 1) return JCS_GRAYSCALE;
  return components == 3 ? JCS_RGB : JCS_CMYK;
}

J_COLOR_SPACE file_space(JpegColor color) {
  switch (color) {
    case JpegColor::grey:
      return JCS_GRAYSCALE;
    case JpegColor::ycc:
      return JCS_YCbCr;
    case JpegColor::rgb:
      return JCS_RGB;
    case JpegColor::cmyk:
      return JCS_CMYK;
    case JpegColor::ycck:
      return JCS_YCCK;
  }
  return JCS_UNKNOWN;
}

void set_samplings(jpeg_compress_struct& info, const JpegRecipe& recipe) {
  for (int i = 0; i < info.num_components; ++i) {
    const bool chroma = i == 1 || i == 2;
    info.comp_info[i].h_samp_factor = chroma ? recipe.chroma.horizontal : recipe.luma.horizontal;
    info.comp_info[i].v_samp_factor = chroma ? recipe.chroma.vertical : recipe.luma.vertical;
  }
}

// `scans` has to live until the JPEG is written.
void set_scans(jpeg_compress_struct& info, JpegScans kind, std::array<jpeg_scan_info, 4>& scans) {
  if (kind == JpegScans::one) return;
  if (kind == JpegScans::progressive) {
    jpeg_simple_progression(&info);
    return;
  }
  const int components = info.num_components;
  if (kind == JpegScans::separate) {
    for (int i = 0; i < components; ++i) {
      scans.at(static_cast<std::size_t>(i)) = {
          .comps_in_scan = 1, .component_index = {i, 0, 0, 0}, .Ss = 0, .Se = DCTSIZE2 - 1, .Ah = 0, .Al = 0};
    }
  } else {
    scans[0] = {.comps_in_scan = components, .component_index = {0, 1, 2, 3}, .Ss = 0, .Se = 0, .Ah = 0, .Al = 0};
  }
  info.scan_info = scans.data();
  info.num_scans = kind == JpegScans::separate ? components : 1;
}

}  // namespace

std::vector<std::uint8_t> synthetic_picture(int width, int height, int channels, unsigned int seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> pixels;
  pixels.reserve(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) *
                 static_cast<std::size_t>(channels));
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const double wave = 55 * std::sin(0.11 * x + 1.3 * c) + 45 * std::cos(0.07 * y - 0.9 * c);
        const double noise = static_cast<double>(random() % 49) - 24;
        pixels.push_back(static_cast<std::uint8_t>(std::clamp(128 + wave + noise, 0.0, 255.0)));
      }
    }
  }
  return pixels;
}

std::vector<std::byte> write_jpeg(const JpegRecipe& recipe) {
  const int components = components_of(recipe.color);
  auto pixels = synthetic_picture(recipe.width, recipe.height, components, recipe.seed);
  jpeg_error_mgr errors{};
  jpeg_compress_struct info{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(recipe.width);
  info.image_height = static_cast<JDIMENSION>(recipe.height);
  info.input_components = components;
  info.in_color_space = input_space(components);
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, file_space(recipe.color));
  jpeg_set_quality(&info, recipe.quality, TRUE);
  set_samplings(info, recipe);
  std::array<jpeg_scan_info, 4> scans{};
  set_scans(info, recipe.scans, scans);
  info.arith_code = recipe.arithmetic ? TRUE : FALSE;
  info.restart_interval = recipe.restart_interval;
  jpeg_start_compress(&info, TRUE);
  const auto row_bytes = static_cast<std::size_t>(recipe.width) * static_cast<std::size_t>(components);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = pixels.data() + info.next_scanline * row_bytes;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  const auto* bytes = reinterpret_cast<const std::byte*>(memory);
  std::vector<std::byte> file(bytes, bytes + size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return file;
}

std::vector<JpegRecipe> all_recipes() {
  std::vector<JpegRecipe> recipes{
      {.name = "4:4:4", .width = 61, .height = 47},
      {.name = "4:2:2", .width = 83, .height = 50, .luma = {2, 1}},
      {.name = "4:2:0", .width = 99, .height = 77, .luma = {2, 2}},
      {.name = "4:2:0 of whole MCUs", .width = 96, .height = 64, .luma = {2, 2}},
      {.name = "4:4:0", .width = 50, .height = 83, .luma = {1, 2}},
      {.name = "4:1:1", .width = 105, .height = 41, .luma = {4, 1}},
      {.name = "4:1:0", .width = 131, .height = 53, .luma = {4, 2}},
      {.name = "4x1 and 2x1", .width = 131, .height = 30, .luma = {4, 1}, .chroma = {2, 1}},
      {.name = "1x4 and 1x2", .width = 40, .height = 131, .luma = {1, 4}, .chroma = {1, 2}},
      {.name = "2x1 and 1x2", .width = 67, .height = 70, .luma = {2, 1}, .chroma = {1, 2}},
      {.name = "1x1 and 2x2", .width = 67, .height = 70, .luma = {1, 1}, .chroma = {2, 2}},
      {.name = "all 2x1", .width = 45, .height = 45, .luma = {2, 1}, .chroma = {2, 1}},
      {.name = "grey", .width = 75, .height = 58, .color = JpegColor::grey},
      {.name = "grey 2x2", .width = 75, .height = 58, .color = JpegColor::grey, .luma = {2, 2}},
      {.name = "rgb", .width = 57, .height = 49, .color = JpegColor::rgb},
      {.name = "cmyk", .width = 53, .height = 44, .color = JpegColor::cmyk},
      {.name = "ycck 4:2:0", .width = 71, .height = 62, .color = JpegColor::ycck, .luma = {2, 2}},
      {.name = "one pixel", .width = 1, .height = 1, .luma = {2, 2}},
      {.name = "narrow", .width = 3, .height = 90, .luma = {2, 2}},
      {.name = "low", .width = 90, .height = 3, .luma = {2, 2}},
      {.name = "just over an MCU", .width = 19, .height = 18, .luma = {2, 2}},
      {.name = "separate scans 4:2:0", .width = 85, .height = 61, .luma = {2, 2}, .scans = JpegScans::separate},
      {.name = "arithmetic 4:2:0", .width = 85, .height = 61, .luma = {2, 2}, .arithmetic = true},
      {.name = "restart 4:2:0", .width = 120, .height = 80, .luma = {2, 2}, .restart_interval = 3},
      {.name = "DC only 4:2:0", .width = 120, .height = 80, .luma = {2, 2}, .scans = JpegScans::dc_only},
  };
  const auto progressive = [&](std::size_t index) {
    JpegRecipe recipe = recipes.at(index);
    recipe.name = "progressive " + recipe.name;
    recipe.scans = JpegScans::progressive;
    return recipe;
  };
  for (const std::size_t index : {0U, 1U, 2U, 4U, 5U, 12U, 15U, 16U}) recipes.push_back(progressive(index));
  return recipes;
}

data::Image reference_decode(std::span<const std::byte> file, int scale_denominator) {
  jpeg_error_mgr errors{};
  jpeg_decompress_struct info{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), static_cast<unsigned long>(file.size()));
  jpeg_read_header(&info, TRUE);
  info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned int>(scale_denominator);
  jpeg_start_decompress(&info);
  data::Image image{.width = static_cast<int>(info.output_width), .height = static_cast<int>(info.output_height)};
  const auto samples = static_cast<std::size_t>(info.output_components);
  std::vector<std::uint8_t> row(info.output_width * samples);
  while (info.output_scanline < info.output_height) {
    JSAMPROW pointer = row.data();
    jpeg_read_scanlines(&info, &pointer, 1);
    for (std::size_t i = 0; i < row.size(); i += samples) {
      for (std::size_t c = 0; c < 3; ++c) {
        if (samples == 3) {
          image.pixels.push_back(row[i + c]);
        } else {
          const double light = row[i + 3];
          image.pixels.push_back(static_cast<std::uint8_t>(light - std::round((255 - row[i + c]) * light / 255)));
        }
      }
    }
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return image;
}

data::Image cropped(const data::Image& image, const data::Crop& crop) {
  data::Image part{.width = crop.width, .height = crop.height, .channels = image.channels};
  const auto channels = static_cast<std::size_t>(image.channels);
  for (int y = crop.y; y < crop.y + crop.height; ++y) {
    const std::uint8_t* begin = image.row(y) + static_cast<std::size_t>(crop.x) * channels;
    part.pixels.insert(part.pixels.end(), begin, begin + part.row_bytes());
  }
  return part;
}

}  // namespace libtrain::test
