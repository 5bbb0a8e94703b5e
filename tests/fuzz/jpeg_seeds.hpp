#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <tests/data/image/jpeg_writer.hpp>

inline std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::vector<std::string> written(const std::vector<libtrain::test::JpegRecipe>& recipes) {
  std::vector<std::string> files;
  for (const auto& recipe : recipes) files.push_back(text_of(libtrain::test::write_jpeg(recipe)));
  return files;
}

/// JPEGs of one scan of Huffman codes, small enough for a fuzzer: below 2 KB.
inline std::vector<std::string> plain_jpeg_seeds() {
  using libtrain::test::JpegColor;
  return written({
      {.width = 40, .height = 24, .luma = {2, 2}, .quality = 60},
      {.width = 24, .height = 16, .quality = 95},
      {.width = 24, .height = 16, .color = JpegColor::grey},
      {.width = 24, .height = 16, .color = JpegColor::ycck, .luma = {2, 1}, .quality = 50},
      {.width = 70, .height = 20, .luma = {2, 2}, .restart_interval = 1, .quality = 40},
      {.width = 64, .height = 24, .luma = {2, 1}, .restart_interval = 2, .quality = 40},
  });
}

/// Those, and JPEGs that are read in other ways.
inline std::vector<std::string> jpeg_seeds() {
  using libtrain::test::JpegScans;
  std::vector<std::string> seeds = plain_jpeg_seeds();
  for (std::string& file : written({
           {.width = 24, .height = 16, .luma = {2, 2}, .scans = JpegScans::progressive, .quality = 50},
           {.width = 24, .height = 16, .scans = JpegScans::separate, .quality = 50},
           {.width = 24, .height = 16, .arithmetic = true, .quality = 50},
       })) {
    seeds.push_back(std::move(file));
  }
  return seeds;
}
