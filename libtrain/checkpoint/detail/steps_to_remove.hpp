#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <libtrain/checkpoint/checkpoint_retention.hpp>

namespace libtrain::detail {

/// A checkpoint of this run, or of a run that it continues.
struct KeptCheckpoint {
  std::int64_t step = 0;
  std::optional<double> metric = {};
  bool is_marked = false;
};

/// The steps to remove of `checkpoints`, which are in the order in which they were written.
std::vector<std::int64_t> steps_to_remove(const std::vector<KeptCheckpoint>& checkpoints,
                                          const CheckpointRetention& retention);

}  // namespace libtrain::detail
