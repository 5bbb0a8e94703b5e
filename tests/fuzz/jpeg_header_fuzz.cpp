// The header of a JPEG or PNG picture: every byte sequence is read or refused by an EnvironmentError.

#include <cstddef>
#include <cstdint>
#include <span>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/image_header.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    constexpr std::uint64_t kMaximumPixels = 1 << 20;
    libtrain::data::read_image_header(std::as_bytes(std::span(data, size)), "fuzzed", kMaximumPixels);
  } catch (const libtrain::EnvironmentError&) {
  }
  return 0;
}
