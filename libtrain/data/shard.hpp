#pragma once

namespace libtrain::data {

/// Which share of every global batch a process reads: the `rank`-th of `world_size` shares.
struct Shard {
  int rank = 0;
  int world_size = 1;
};

}  // namespace libtrain::data
