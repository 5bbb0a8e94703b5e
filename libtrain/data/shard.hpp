#pragma once

#include <cstdint>

namespace libtrain::data {

/// Which share of every global batch a process reads: the `rank`-th of `world_size` shares.
struct Shard {
  int rank = 0;
  int world_size = 1;
  std::uint64_t seed = 0;  ///< of the run, the same on every rank: what a DataLoader takes unless it is given its own
};

}  // namespace libtrain::data
