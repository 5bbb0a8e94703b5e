#pragma once

#include <cstddef>
#include <string>
#include <variant>

#include <libtrain/data/formats/detail/tf_example.hpp>

#include <tests/data/formats/record_bytes.hpp>
#include <tests/data/formats/tar_bytes.hpp>

namespace libtrain::data {

/// Small files with something of everything, for damaging them.

inline std::string sample_example(int number) {
  const std::string image(40 + static_cast<std::size_t>(number), static_cast<char>('a' + number));
  detail::TfExample example;
  example.features["image/encoded"] = detail::TfBytesList{image, "second"};
  example.features["image/class/label"] = detail::TfInt64List{number, -1, 1 << 20};
  example.features["nothing"] = std::monostate{};
  return detail::serialize_tf_example(example);
}

inline std::string sample_records() {
  std::string file;
  for (int i = 0; i < 5; ++i) file += framed(sample_example(i));
  return file + framed("");
}

inline std::string sample_tar() {
  const std::string long_name = "train/" + std::string(200, 'n') + ".jpg";
  const std::string extended = pax_line("path", long_name) + pax_line("size", "3");
  const std::string large(600, 'b');
  const std::string size_in_base_256 = "\x80" + std::string(9, '\0') + "\x02\x58";
  return tar_member({.name = "train/", .type = '5'}) + tar_member({.name = "1.jpg", .data = "picture"}) +
         tar_member({.name = "1.cls", .data = "7", .prefix = "train"}) +
         tar_member({.name = "././@PaxHeader", .data = extended, .type = 'x'}) +
         tar_member({.name = "short", .data = "abc"}) +
         tar_member({.name = "././@LongLink", .data = "2" + long_name + '\0', .type = 'L', .magic = "ustar  "}) +
         tar_member({.name = "short", .data = large, .size_field = size_in_base_256, .magic = "ustar  "}) +
         tar_member({.name = "link", .type = '1', .link = "1.jpg"}) + tar_end();
}

inline std::string sample_idx() {
  return std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x03\0\0\0\x04", 16) + std::string(24, 'p');
}

}  // namespace libtrain::data
