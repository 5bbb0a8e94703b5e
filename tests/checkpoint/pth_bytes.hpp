#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>

namespace libtrain::test {

inline std::string little_endian(std::uint64_t number, int bytes) {
  std::string digits;
  for (int i = 0; i < bytes; ++i, number >>= 8) digits += static_cast<char>(number & 0xff);
  return digits;
}

struct ZipPart {
  std::string name = {};
  std::string bytes = {};
  std::uint16_t method = 0;
  bool has_checksum = true;
};

enum class ZipNumbers { narrow, wide };  // without and with the 64-bit extension

/// A zip archive, by PKWARE's APPNOTE. `wide` has every number in its 64-bit form that has one.
inline std::string zip_bytes(const std::vector<ZipPart>& parts, ZipNumbers numbers = ZipNumbers::wide) {
  const bool is_wide = numbers == ZipNumbers::wide;
  std::string archive;
  std::string directory;
  for (const auto& [name, bytes, method, has_checksum] : parts) {
    const auto* const data = reinterpret_cast<const Bytef*>(bytes.data());
    const std::uint64_t crc = has_checksum ? ::crc32_z(0, data, bytes.size()) : 0;
    const auto begin = archive.size();
    const std::string common =
        little_endian(0, 2) + little_endian(method, 2) + little_endian(0, 4) + little_endian(crc, 4);
    archive += "PK\3\4" + little_endian(20, 2) + common + little_endian(bytes.size(), 4) +
               little_endian(bytes.size(), 4) + little_endian(name.size(), 2) + little_endian(8, 2) + name + "FB" +
               little_endian(4, 2) + "ZZZZ" + bytes;
    const std::string extra = little_endian(1, 2) + little_endian(24, 2) + little_endian(bytes.size(), 8) +
                              little_endian(bytes.size(), 8) + little_endian(begin, 8);
    const auto number = [&](std::uint64_t value) { return is_wide ? "\xff\xff\xff\xff" : little_endian(value, 4); };
    directory += "PK\1\2" + little_endian(20, 2) + little_endian(20, 2) + common + number(bytes.size()) +
                 number(bytes.size()) + little_endian(name.size(), 2) + little_endian(is_wide ? extra.size() : 0, 2) +
                 little_endian(0, 10) + number(begin) + name + (is_wide ? extra : "");
  }
  const auto begin = archive.size();
  archive += directory;
  const auto end = archive.size();
  const auto count = parts.size();
  if (is_wide) {
    archive += "PK\6\6" + little_endian(44, 8) + little_endian(0, 12) + little_endian(count, 8) +
               little_endian(count, 8) + little_endian(directory.size(), 8) + little_endian(begin, 8);
    archive += "PK\6\7" + little_endian(0, 4) + little_endian(end, 8) + little_endian(1, 4);
  }
  return archive + "PK\5\6" + little_endian(0, 4) + little_endian(count, 2) + little_endian(count, 2) +
         little_endian(directory.size(), 4) + little_endian(begin, 4) + little_endian(0, 2);
}

// Parts of pickles, by Python's pickletools.

inline std::string pickled_text(std::string_view text) {
  return "X" + little_endian(text.size(), 4) + std::string{text};
}

inline std::string pickled_number(std::int64_t number) {
  return "\x8a\x08" + little_endian(static_cast<std::uint64_t>(number), 8);
}

inline std::string pickled_tuple(const std::vector<std::int64_t>& numbers) {
  std::string tuple = "(";
  for (const auto number : numbers) tuple += pickled_number(number);
  return tuple + "t";
}

inline std::string pickled_storage(std::string_view key, std::int64_t elements,
                                   std::string_view type = "FloatStorage") {
  return "(" + pickled_text("storage") + "ctorch\n" + std::string{type} + "\n" + pickled_text(key) +
         pickled_text("cpu") + pickled_number(elements) + "tQ";
}

inline const std::string kOrderedDict = "ccollections\nOrderedDict\n)R";

/// A tensor of float32, as Tensor.__reduce_ex__ makes it.
inline std::string pickled_tensor(std::string_view key, std::int64_t elements, const std::vector<std::int64_t>& shape,
                                  const std::vector<std::int64_t>& strides, std::int64_t first = 0) {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + pickled_storage(key, elements) + pickled_number(first) +
         pickled_tuple(shape) + pickled_tuple(strides) + "\x89" + kOrderedDict + "tR";
}

/// The pickle of protocol 2 of a value.
inline std::string pickle_of(std::string_view value) {
  return "\x80\x02" + std::string{value} + ".";
}

/// {"weight": a tensor of shape [2, 3], "steps": 3, "inner": {"bias": [...]}} with an OrderedDict's _metadata.
inline std::string sample_state_dict() {
  return pickle_of(kOrderedDict + "q\1(" + pickled_text("weight") + pickled_tensor("0", 6, {2, 3}, {3, 1}) +
                   pickled_text("steps") + "K\3" + pickled_text("inner") + "}(" + pickled_text("bias") +
                   pickled_tensor("1", 2, {2}, {1}) + "uu}" + pickled_text("_metadata") + "h\1sb");
}

/// The record of a file of torch.save of that name.
inline ZipPart pth_part(std::string_view name, std::string_view bytes) {
  return {.name = "archive/" + std::string{name}, .bytes = std::string{bytes}};
}

inline std::vector<ZipPart> sample_parts() {
  return {pth_part("data.pkl", sample_state_dict()), pth_part("byteorder", "little"),
          pth_part("data/0", std::string(24, '\1')), pth_part("data/1", std::string(8, '\2')),
          pth_part("version", "3\n")};
}

/// A file as torch.save makes it.
inline std::string sample_pth() {
  return zip_bytes(sample_parts());
}

}  // namespace libtrain::test
