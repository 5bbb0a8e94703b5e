// A tar archive, plain or in gzip, grouped as WebDataset does: every byte sequence is read or refused by an
// EnvironmentError.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/formats/web_dataset.hpp>

#include <tests/data/formats/deflated.hpp>
#include <tests/data/formats/shard_samples.hpp>
#include <tests/data/formats/tar_bytes.hpp>
#include <tests/data/memory_file.hpp>
#include <tests/fuzz/target.hpp>

namespace {

void read(const std::string& bytes) {
  using namespace libtrain::data;
  try {
    const WebDatasetShard shard(TarFile(memory_file(bytes), {.inflated_limit_bytes = std::uint64_t{1} << 20}));
    std::string content;
    for (std::uint64_t i = 0; i < shard.size(); ++i) {
      for (const auto& extension : shard.extensions(i)) shard.read(i, extension, content);
    }
    ++read_inputs;
  } catch (const libtrain::EnvironmentError&) {
  }
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  using namespace libtrain::data;
  return {sample_tar(), deflated(sample_tar(), Wrapping::gzip)};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  // Chance does not find checksums.
  libtrain::data::repair_tar(bytes);
  read(bytes);
  return 0;
}
