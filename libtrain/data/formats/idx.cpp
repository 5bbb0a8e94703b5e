#include <libtrain/data/formats/idx.hpp>

#include <array>
#include <cstddef>
#include <span>

#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>

namespace libtrain::data {

namespace {

constexpr std::uint64_t kMagicBytes = 4;
constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr int kMaxDimensions = 4;

using FourBytes = std::array<std::uint8_t, 4>;

[[noreturn]] void fail(const std::string& path, std::uint64_t offset, const std::string& expected_and_found) {
  throw EnvironmentError(text("IDX file '", path, "', byte offset ", offset, ": ", expected_and_found, "."));
}

FourBytes read_four(const File& file, std::uint64_t offset) {
  FourBytes bytes{};
  file.read_at(offset, std::as_writable_bytes(std::span{bytes}));
  return bytes;
}

int dimensions_of(const FourBytes& magic, const std::string& path) {
  if (magic[0] == 0x1f && magic[1] == 0x8b) {
    fail(path, 0, "expected two zero bytes, found 0x1f8b of a gzip file. Decompress it first");
  }
  if (magic[0] != 0 || magic[1] != 0) {
    fail(path, 0,
         text("expected two zero bytes, found ",
              libtrain::detail::hexadecimal(std::uint64_t{magic[0]} << 8 | magic[1], 4)));
  }
  if (magic[2] != kUnsignedByte) {
    fail(path, 2,
         text("expected element type 0x08 (unsigned byte), found ", libtrain::detail::hexadecimal(magic[2], 2)));
  }
  if (magic[3] < 1 || magic[3] > kMaxDimensions) {
    fail(path, 3, text("expected 1 to ", kMaxDimensions, " dimensions, found ", static_cast<int>(magic[3])));
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
  const auto file = detail::open_local_file(path);
  const std::uint64_t size = file->size();
  if (size < kMagicBytes) fail(path, size, "expected a header of at least 4 bytes, found the end of the file");
  const auto dimensions = static_cast<std::uint64_t>(dimensions_of(read_four(*file, 0), path));
  const std::uint64_t header = kMagicBytes + 4 * dimensions;
  if (size < header) {
    fail(path, size,
         text("expected a header of ", header, " bytes for ", dimensions, " dimensions, found the end of the file"));
  }

  IdxFile result;
  for (std::uint64_t offset = kMagicBytes; offset < header; offset += 4) {
    const FourBytes b = read_four(*file, offset);
    result.shape.push_back(std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3]);
  }

  const std::uint64_t elements = product(result.shape, path);
  if (size - header != elements) {
    fail(path, size - header < elements ? size : header + elements,
         text("expected ", elements, " bytes of data for ", join(result.shape, " x "), ", found ", size - header,
              size - header < elements ? " (the file is truncated)" : " (the file has trailing bytes)"));
  }
  result.bytes.resize(elements);
  file->read_at(header, std::as_writable_bytes(std::span{result.bytes}));
  return result;
}

}  // namespace libtrain::data
