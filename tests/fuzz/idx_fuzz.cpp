// An IDX file: every byte sequence is read or refused by an EnvironmentError.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <libtrain/base/error.hpp>
#include <libtrain/data/formats/idx.hpp>

#include <tests/data/memory_path.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const libtrain::data::MemoryPath file(std::string_view(reinterpret_cast<const char*>(data), size));
  try {
    libtrain::data::read_idx(file.path());
  } catch (const libtrain::EnvironmentError&) {
  }
  return 0;
}
