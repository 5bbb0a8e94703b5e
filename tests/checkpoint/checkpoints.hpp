#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <libtrain/checkpoint/checkpoint_file_writer.hpp>
#include <libtrain/checkpoint/checkpoint_writer.hpp>

#include <tests/checkpoint/checkpoint_bytes.hpp>

namespace libtrain::test {

inline constexpr std::size_t kModelBytes = 1000;

/// Writes the files of a checkpoint that was begun: model.bin, of two tensors, and the empty loader.json.
inline std::vector<CheckpointFile> write_files(const std::filesystem::path& root, const std::string& begun,
                                               std::int64_t step) {
  std::vector<CheckpointPart> parts;
  parts.push_back({"model.bin", [step](CheckpointFileWriter& file) {
                     const auto bytes = checkpoint_bytes(step, "model.bin", kModelBytes);
                     file.write_tensor("first", std::string_view{bytes}.substr(0, 300));
                     file.write_tensor("second", std::string_view{bytes}.substr(300));
                   }});
  parts.push_back({"loader.json", [](CheckpointFileWriter&) {}});
  return write_checkpoint_files(root, begun, std::move(parts));
}

inline std::filesystem::path save(CheckpointWriter& writer, std::int64_t step,
                                  std::map<std::string, double> metrics = {}) {
  const auto begun = writer.begin(step);
  return writer.commit({.step = step, .metrics = std::move(metrics), .files = write_files(writer.root(), begun, step)});
}

}  // namespace libtrain::test
