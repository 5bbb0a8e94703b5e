#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace libtrain::data {

/// The content of an IDX file of unsigned bytes: an array in row-major order.
struct IdxFile {
  std::vector<std::uint32_t> shape;
  std::vector<std::uint8_t> bytes;
};

/// Reads an IDX file as published by Y. LeCun, C. Cortes and C. Burges with MNIST: two zero bytes, the element type,
/// the number of dimensions, each dimension as a big-endian 32-bit number, the data. Elements must be unsigned bytes
/// (type 0x08), the number of dimensions 1 to 4, and the file length must match the header; memory is allocated only
/// after that has been checked. Compressed files are not supported.
/// Throws EnvironmentError: one sentence that names the file, the byte offset, what was expected and what was found.
IdxFile read_idx(const std::string& path);

}  // namespace libtrain::data
