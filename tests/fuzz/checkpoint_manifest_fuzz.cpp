// The manifest of a checkpoint: every byte sequence is read or refused by an EnvironmentError, and what was read can be
// written and read again.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/checkpoint_manifest.hpp>

#include <tests/checkpoint/manifest_seal.hpp>
#include <tests/fuzz/target.hpp>

namespace {

void read(const std::string& bytes) {
  using namespace libtrain;
  try {
    const auto manifest = parse_checkpoint_manifest(bytes, "manifest.json");
    ++read_inputs;
    for (const auto& file : manifest.files) require(is_checkpoint_file_name(file.name));
    // Secrets are masked when it is written, which may be the first time.
    const auto again = parse_checkpoint_manifest(to_text(manifest), "manifest.json");
    require(again.step == manifest.step && again.files == manifest.files);
  } catch (const EnvironmentError&) {
  }
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  using namespace libtrain;
  return {to_text(CheckpointManifest{.run_ids = {"run"}}),
          to_text(CheckpointManifest{.step = 12,
                                     .world_size = 2,
                                     .run_ids = {"first", "second"},
                                     .metrics = {{"loss", 0.5}},
                                     .configuration = R"({"lr":0.1,"layers":[1,{"a":null}]})",
                                     .files = {{.name = "model.safetensors",
                                                .bytes = 100,
                                                .crc32c = 7,
                                                .tensors = {{.name = "w", .offset = 8, .bytes = 92, .crc32c = 1}}}}})};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  // Chance does not find checksums.
  read(libtrain::test::with_right_checksum(std::move(bytes)));
  return 0;
}
