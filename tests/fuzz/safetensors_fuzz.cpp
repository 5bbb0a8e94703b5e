// A safetensors file: every byte sequence is read or refused by an EnvironmentError.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/safetensors.hpp>

#include <tests/checkpoint/safetensors_bytes.hpp>
#include <tests/data/memory_path.hpp>
#include <tests/fuzz/target.hpp>

namespace {

// What a reader may rely on.
void read(std::string_view bytes) {
  const libtrain::data::MemoryPath memory(bytes);
  try {
    const libtrain::SafetensorsFile file(memory.path());
    std::uint64_t total = 0;
    for (const auto& tensor : file.tensors()) {
      std::vector<std::byte> data(tensor.bytes);
      file.read(tensor, data);
      require(file.find(tensor.info.name) == &tensor);
      require(libtrain::contiguous_bytes(tensor.info.type, tensor.info.shape) == tensor.bytes);
      total += tensor.bytes;
    }
    require(total < bytes.size());
    ++read_inputs;
  } catch (const libtrain::EnvironmentError&) {
  }
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {libtrain::test::sample_safetensors(), libtrain::test::safetensors_bytes("{}", "")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  // Chance does not find lengths: as a header without data, too.
  read(libtrain::test::safetensors_bytes(bytes.substr(bytes.size() < 8 ? bytes.size() : 8), ""));
  return 0;
}
