#pragma once

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <libtrain/numeric/data_type.hpp>

#include <tests/support/device.hpp>
#include <tests/support/on_ranks.hpp>

/// Values for tests of collectives, and the expected results, computed by torch.

namespace libtrain::test {

inline constexpr std::int64_t kSeveralChunks = (1 << 20) + 7;  // of MPI's, and of the other transports'

// The large ones for few element types, and for all on demand.
inline std::vector<std::int64_t> sizes_for(at::ScalarType type) {
  const bool all = tests_all_sizes();
  std::vector<std::int64_t> sizes{0, 1, 3, 17, 1021};
  if (all || type == at::kFloat || type == at::kHalf) sizes.push_back(65537);
  if (all) sizes.insert(sizes.end(), {2, 64, 4099, kSeveralChunks});
  return sizes;
}

inline constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                            at::kInt,   at::kLong,   at::kByte};

// Small whole numbers, different on each rank: sums are exact in every type.
inline at::Tensor pattern(int rank, std::int64_t size, at::ScalarType type) {
  return torch::arange(size, at::kLong).remainder(7).add(rank + 1).to(type).to(device());
}

// The reduction of all ranks' `pattern`, computed by torch on the host.
inline at::Tensor expected(int world_size, std::int64_t size, at::ScalarType type, ReduceOp op) {
  auto result = pattern(0, size, type).cpu();
  for (int rank = 1; rank < world_size; ++rank) {
    const auto next = pattern(rank, size, type).cpu();
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::average:
        result = result + next;
        break;
      case ReduceOp::minimum:
        result = torch::minimum(result, next);
        break;
      case ReduceOp::maximum:
        result = torch::maximum(result, next);
        break;
      case ReduceOp::product:
        result = result * next;
        break;
    }
  }
  return op == ReduceOp::average ? result.to(at::kDouble).div(world_size).to(type) : result;
}

inline void expect_equal(const at::Tensor& actual, const at::Tensor& wanted, const char* what) {
  EXPECT_TRUE(torch::equal(actual.cpu(), wanted.cpu()))
      << what << " of " << actual.numel() << " " << actual.scalar_type();
}

}  // namespace libtrain::test
