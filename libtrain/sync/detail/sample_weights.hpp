#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// How much this rank's gradients count in a round.
struct SampleWeight {
  std::int64_t total = 0;  ///< samples of all ranks
  double weight = 1;       ///< this rank's share times the world size: 1 if all have equally many, 0 without samples
  int source = 0;          ///< the first rank that has samples
  bool is_empty = false;   ///< no rank has samples
  bool all_joined = false;
  bool is_refused = false;  ///< a rank gave kRefused
};

/// Exchanges the ranks' numbers of samples: one small all-gather, in memory that is reused.
class SampleWeights {
 public:
  static constexpr std::int64_t kJoined = -1;   ///< no samples, in this round and later ones
  static constexpr std::int64_t kRefused = -2;  ///< a usage error, which all ranks must report

  explicit SampleWeights(Communicator& communicator) : communicator_(communicator) {}

  /// `samples` is 0 or more, kJoined or kRefused.
  SampleWeight exchange(std::int64_t samples);

 private:
  Communicator& communicator_;
  at::Tensor counts_;  // [world_size], int64; made when first needed
};

}  // namespace libtrain::detail
