// A file of torch.save, and the pickle in it: every byte sequence is read or refused by an EnvironmentError.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/detail/pth_file.hpp>

#include <tests/checkpoint/pth_bytes.hpp>
#include <tests/data/memory_path.hpp>
#include <tests/fuzz/target.hpp>

namespace {

void read(const std::string& bytes) {
  const libtrain::data::MemoryPath memory(bytes);
  try {
    const libtrain::detail::PthFile file(memory.path());
    for (const auto& tensor : file.tensors()) {
      std::vector<std::byte> storage(tensor.storage_bytes);
      file.read_storage(tensor, storage);
      // What as_strided() relies on.
      std::uint64_t last = tensor.first;
      bool is_empty = false;
      for (std::size_t i = 0; i < tensor.strides.size(); ++i) {
        is_empty = is_empty || tensor.info.shape[i] == 0;
        last += static_cast<std::uint64_t>(tensor.info.shape[i] - 1) * static_cast<std::uint64_t>(tensor.strides[i]);
      }
      require(is_empty || last < storage.size());
    }
    ++read_inputs;
  } catch (const libtrain::EnvironmentError&) {
  }
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  using namespace libtrain::test;
  return {sample_pth(), zip_bytes(sample_parts(), ZipNumbers::narrow), sample_state_dict()};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  // Chance does not find checksums: as the pickle in an intact archive, too.
  auto parts = libtrain::test::sample_parts();
  parts[0].bytes = bytes;
  read(libtrain::test::zip_bytes(parts));
  return 0;
}
