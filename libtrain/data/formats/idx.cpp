#include <libtrain/data/formats/idx.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

constexpr std::uint64_t kMagicBytes = 4;
constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr int kMaximumDimensions = 4;

using Magic = std::array<std::uint8_t, kMagicBytes>;

[[noreturn]] void fail(const std::string& path, std::uint64_t offset, const std::string& expected_and_found) {
  throw EnvironmentError(text("IDX file '", path, "', byte offset ", offset, ": ", expected_and_found, "."));
}

std::string hexadecimal(std::initializer_list<std::uint8_t> bytes) {
  std::ostringstream stream;
  stream << "0x" << std::hex << std::setfill('0');
  for (const auto byte : bytes) stream << std::setw(2) << static_cast<int>(byte);
  return stream.str();
}

std::uint64_t size_of(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fail(path, 0, "expected a regular file, found something else");
  }
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (error) fail(path, 0, text("expected a readable file, found: ", error.message()));
  return size;
}

void read(std::ifstream& file, const std::string& path, std::uint64_t offset, std::uint8_t* to, std::uint64_t count) {
  file.read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(count));
  const auto found = static_cast<std::uint64_t>(file.gcount());
  if (found != count) fail(path, offset + found, text("expected ", count - found, " more bytes, found none"));
}

int dimensions_of(const Magic& magic, const std::string& path) {
  if (magic[0] == 0x1f && magic[1] == 0x8b) {
    fail(path, 0, "expected two zero bytes, found 0x1f8b of a gzip file, which has to be decompressed first");
  }
  if (magic[0] != 0 || magic[1] != 0) {
    fail(path, 0, text("expected two zero bytes, found ", hexadecimal({magic[0], magic[1]})));
  }
  if (magic[2] != kUnsignedByte) {
    fail(path, 2, text("expected element type 0x08 (unsigned byte), found ", hexadecimal({magic[2]})));
  }
  if (magic[3] < 1 || magic[3] > kMaximumDimensions) {
    fail(path, 3, text("expected 1 to ", kMaximumDimensions, " dimensions, found ", static_cast<int>(magic[3])));
  }
  return magic[3];
}

// The number of elements; a product beyond 64 bits cannot be the size of a file.
std::uint64_t product(const std::vector<std::uint32_t>& shape, const std::string& path) {
  std::uint64_t elements = 1;
  for (const auto dimension : shape) {
    if (__builtin_mul_overflow(elements, std::uint64_t{dimension}, &elements)) {
      fail(path, kMagicBytes, text("expected dimensions whose product fits 64 bits, found ", join(shape, " x ")));
    }
  }
  return elements;
}

}  // namespace

IdxFile read_idx(const std::string& path) {
  const std::uint64_t size = size_of(path);
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, 0, text("expected a readable file, found: ", std::strerror(errno)));

  if (size < kMagicBytes) fail(path, size, text("expected a header of at least 4 bytes, found the end of the file"));
  Magic magic{};
  read(file, path, 0, magic.data(), magic.size());
  const auto dimensions = static_cast<std::uint64_t>(dimensions_of(magic, path));
  const std::uint64_t header = kMagicBytes + 4 * dimensions;
  if (size < header) {
    fail(path, size,
         text("expected a header of ", header, " bytes for ", dimensions, " dimensions, found the end of the file"));
  }

  IdxFile result;
  for (std::uint64_t i = 0; i < dimensions; ++i) {
    std::array<std::uint8_t, 4> b{};
    read(file, path, kMagicBytes + 4 * i, b.data(), b.size());
    result.shape.push_back(std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3]);
  }

  const std::uint64_t elements = product(result.shape, path);
  if (size - header != elements) {
    fail(path, size < header + elements ? size : header + elements,
         text("expected ", elements, " bytes of data for ", join(result.shape, " x "), ", found ", size - header,
              size - header < elements ? " (the file is truncated)" : " (the file has trailing bytes)"));
  }
  result.bytes.resize(elements);
  read(file, path, header, result.bytes.data(), elements);
  return result;
}

}  // namespace libtrain::data
