#pragma once

#include <cstdint>

namespace libtrain::data {

/// The share of every global batch that a process reads: number `rank` of `world_size` shares.
struct Shard {
  int rank = 0;
  int world_size = 1;
  std::uint64_t seed = 0;  ///< of the run, the same on every rank: the default seed of a DataLoader
};

}  // namespace libtrain::data
