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
  bool is_empty = false;   ///< no rank has samples
  bool all_joined = false;
  bool is_refused = false;  ///< a rank cannot say
};

/// Lets the ranks tell each other how many samples each has: one small all-gather, over memory that is kept.
class SampleWeights {
 public:
  static constexpr std::int64_t kJoined = -1;   ///< no samples, in this round and later ones
  static constexpr std::int64_t kRefused = -2;  ///< a mistake, of which all ranks must know

  explicit SampleWeights(Communicator& communicator) : communicator_(communicator) {}

  /// `samples` are 0 or more, kJoined or kRefused.
  SampleWeight exchange(std::int64_t samples);

 private:
  Communicator& communicator_;
  at::Tensor counts_;  // [world_size], int64; made when first needed
};

}  // namespace libtrain::detail
