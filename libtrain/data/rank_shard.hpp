#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include <c10/core/Device.h>

#include <libtrain/data/dataset_identity.hpp>
#include <libtrain/data/shard.hpp>

namespace libtrain::data {

/// A rank's share of the data, and what else a DataLoader takes from the run that it belongs to: Context::shard().
struct RankShard : Shard {
  RankShard(const Shard& shard, c10::Device to, std::filesystem::path output, std::string run = {})
      : Shard(shard), device(to), output_directory(std::move(output)), run_id(std::move(run)) {}

  c10::Device device;                      ///< where batches are wanted
  std::filesystem::path output_directory;  ///< of the run: bad_samples.jsonl is there
  std::string run_id;                      ///< of the run: in each of its records there, unless it is empty
  /// Called on every rank when a loader begins its first epoch: throws UsageError where ranks have different data.
  /// Empty: nothing is compared.
  std::function<void(const DatasetIdentity&)> require_same = {};
};

}  // namespace libtrain::data
