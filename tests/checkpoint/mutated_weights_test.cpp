// 10,000 damaged files for every reader of weights: each is either read or refused by an EnvironmentError, with memory
// in proportion to the file.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/detail/pth_file.hpp>
#include <libtrain/checkpoint/safetensors.hpp>

#include <tests/checkpoint/pth_bytes.hpp>
#include <tests/checkpoint/safetensors_bytes.hpp>
#include <tests/data/formats/counted_allocation.hpp>
#include <tests/data/formats/mutation.hpp>
#include <tests/data/memory_path.hpp>

namespace libtrain {
namespace {

constexpr std::uint64_t kFiles = 10'000;

// A value of a pickle has 64 bytes, of which a byte of the pickle makes one, in a vector that doubles.
constexpr std::size_t kBytesPerByte = 300;

// What messages, file names and objects of fixed size take.
constexpr std::size_t kFixedBytes = std::size_t{64} << 10;

void expect_read_or_refused(const std::string& whole, const std::function<void(const std::string& bytes)>& read) {
  int refused = 0;
  for (std::uint64_t seed = 0; seed < kFiles; ++seed) {
    SCOPED_TRACE(seed);
    const std::string bytes = data::Mutator(seed).mutate(whole);
    const data::AllocationPeak peak;
    try {
      read(bytes);
    } catch (const EnvironmentError&) {
      ++refused;
    }
    EXPECT_LE(peak.bytes(), kBytesPerByte * bytes.size() + kFixedBytes);
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, static_cast<int>(kFiles));
}

void read_safetensors(const std::string& bytes) {
  const data::MemoryPath memory(bytes);
  const SafetensorsFile file(memory.path());
  for (const auto& tensor : file.tensors()) file.crc32c(tensor);
}

void read_pth(const std::string& bytes) {
  const data::MemoryPath memory(bytes);
  const detail::PthFile file(memory.path());
  for (const auto& tensor : file.tensors()) {
    std::vector<std::byte> storage(tensor.storage_bytes);
    file.read_storage(tensor, storage);
  }
}

TEST(MutatedWeights, SafetensorsFilesAreReadOrRefused) {
  expect_read_or_refused(test::sample_safetensors(), read_safetensors);
}

TEST(MutatedWeights, SafetensorsHeadersAreReadOrRefused) {
  const std::string header = test::sample_safetensors().substr(8);
  expect_read_or_refused(header.substr(0, header.size() - 25), [](const std::string& bytes) {
    read_safetensors(test::safetensors_bytes(bytes, std::string(25, '\0')));
  });
}

TEST(MutatedWeights, FilesOfTorchSaveAreReadOrRefused) {
  expect_read_or_refused(test::sample_pth(), read_pth);
}

TEST(MutatedWeights, PicklesInIntactArchivesAreReadOrRefused) {
  expect_read_or_refused(test::sample_state_dict(), [](const std::string& bytes) {
    auto parts = test::sample_parts();
    parts[0].bytes = bytes;
    read_pth(test::zip_bytes(parts));
  });
}

}  // namespace
}  // namespace libtrain
