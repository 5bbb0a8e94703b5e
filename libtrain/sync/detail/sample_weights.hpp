#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// How much each rank's gradients count in a round.
struct SampleWeight {
  std::int64_t total = 0;  ///< samples of all ranks
  double weight = 1;       ///< this rank's share times the world size: 1 where all have equally many, 0 without samples
  int source = 0;          ///< the first rank that has samples
};

/// Lets the ranks tell each other how many samples each has: one small all-gather, over memory that is kept.
class SampleWeights {
 public:
  explicit SampleWeights(Communicator& communicator) : communicator_(communicator) {}
  SampleWeight exchange(std::int64_t samples);

 private:
  Communicator& communicator_;
  at::Tensor counts_;  // [world_size], int64; made when first needed
};

}  // namespace libtrain::detail
