#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include <c10/core/Device.h>

#include <libtrain/data/dataset_identity.hpp>
#include <libtrain/data/shard.hpp>

namespace libtrain::data {

/// A rank's share of the data and the properties of its run that a DataLoader needs: see Context::shard().
struct RankShard : Shard {
  RankShard(const Shard& shard, c10::Device to, std::filesystem::path output, std::string run = {})
      : Shard(shard), device(to), output_directory(std::move(output)), run_id(std::move(run)) {}

  c10::Device device;                      ///< device to which batches are copied
  std::filesystem::path output_directory;  ///< of the run: folder of bad_samples.jsonl
  std::string run_id;                      ///< of the run: part of each record in that file, unless it is empty
  /// Called on every rank when a loader starts its first epoch: throws UsageError if ranks have different data. If it
  /// is empty, nothing is compared.
  std::function<void(const DatasetIdentity&)> require_same = {};
};

}  // namespace libtrain::data
