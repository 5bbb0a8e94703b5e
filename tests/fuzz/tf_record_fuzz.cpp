// A TFRecord file, plain or compressed: every byte sequence is read or refused by an EnvironmentError.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/formats/tf_record.hpp>

#include <tests/data/formats/deflated.hpp>
#include <tests/data/formats/record_bytes.hpp>
#include <tests/data/formats/shard_samples.hpp>
#include <tests/data/memory_file.hpp>
#include <tests/fuzz/target.hpp>

namespace {

void read(const std::string& bytes) {
  using namespace libtrain::data;
  try {
    const TfRecordFile file(memory_file(bytes), {.inflated_limit_bytes = std::uint64_t{1} << 20}, DataChecksum::ignore);
    std::string record;
    for (std::uint64_t i = 0; i < file.size(); ++i) file.read(i, record);
    ++read_inputs;
  } catch (const libtrain::EnvironmentError&) {
  }
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  using namespace libtrain::data;
  return {sample_records(), deflated(sample_records(), Wrapping::gzip), deflated(sample_records(), Wrapping::zlib)};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  // Chance does not find checksums.
  libtrain::data::repair_records(bytes);
  read(bytes);
  return 0;
}
