#include <gtest/gtest.h>

#include <libtrain/comm/threads/run_ranks.hpp>

#include <tests/support/on_ranks.hpp>

namespace libtrain::testing {

void on_ranks(const RankBody& body) {
  for (const int world_size : {1, 2, 3, 4}) {
    SCOPED_TRACE(world_size);
    run_ranks(world_size, body, {.timeout = std::chrono::seconds(60)});
  }
}

void on_fresh_ranks(int minimum_ranks, CommunicatorOptions options, const RankBody& body) {
  for (int world_size = minimum_ranks; world_size <= 4; ++world_size) run_ranks(world_size, body, options);
}

}  // namespace libtrain::testing
