#pragma once

#include <filesystem>
#include <utility>

#include <c10/core/Device.h>

#include <libtrain/data/shard.hpp>

namespace libtrain::data {

/// A rank's share of the data, and what else a DataLoader takes from the run that it belongs to: Context::shard().
struct RankShard : Shard {
  RankShard(const Shard& shard, c10::Device to, std::filesystem::path output)
      : Shard(shard), device(to), output_directory(std::move(output)) {}

  c10::Device device;                      ///< where batches are wanted
  std::filesystem::path output_directory;  ///< of the run: bad_samples.jsonl is there
};

}  // namespace libtrain::data
