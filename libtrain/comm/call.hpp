#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <libtrain/comm/data_type.hpp>

namespace libtrain::detail {

enum class CallKind : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  barrier,
  all_gather_bytes,
  broadcast_bytes,
  split,
};

/// Which collective was called, in every respect in which the ranks must agree.
struct Call {
  CallKind kind = CallKind::barrier;
  std::uint64_t count = 0;  ///< elements; of one rank's part where the collective has parts
  std::optional<DataType> type = {};
  std::optional<ReduceOp> op = {};
  std::optional<int> root = {};
};

/// "all_reduce of 10 float32 (sum)", "broadcast of 3 int64 from rank 2", "barrier".
std::string to_string(const Call& call);

/// Equal for equal calls with equal numbers, and for others with a probability of 2^-64.
std::uint64_t fingerprint(const Call& call, std::uint64_t sequence);

}  // namespace libtrain::detail
