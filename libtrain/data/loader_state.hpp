#pragma once

#include <cstdint>

namespace libtrain::data {

/// Where a loader stands: the samples of the epoch's order before `position` have been consumed by all ranks together.
/// Independent of the world size and of the batch size, either of which may change before a run goes on from here.
struct LoaderState {
  std::uint64_t seed = 0;  ///< of the order
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;      ///< 0 at the start of an epoch, at most dataset_size
  std::uint64_t dataset_size = 0;  ///< in samples: a data set of another size has another order
  std::uint64_t order = 0;         ///< Sampler::fingerprint(); 0 where it is not known

  bool operator==(const LoaderState&) const = default;
};

}  // namespace libtrain::data
