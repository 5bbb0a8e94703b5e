// An IDX file: every byte sequence is read or refused by an EnvironmentError.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/formats/idx.hpp>

#include <tests/data/formats/shard_samples.hpp>
#include <tests/data/memory_path.hpp>
#include <tests/fuzz/target.hpp>

std::vector<std::string> fuzz_seeds() {
  return {libtrain::data::sample_idx()};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const libtrain::data::MemoryPath file(std::string_view(reinterpret_cast<const char*>(data), size));
  try {
    libtrain::data::read_idx(file.path());
    ++read_inputs;
  } catch (const libtrain::EnvironmentError&) {
  }
  return 0;
}
