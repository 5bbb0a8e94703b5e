#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/numeric/data_type.hpp>

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

/// A call of a collective, with everything that must be equal on all ranks.
struct Call {
  CallKind kind = CallKind::barrier;
  std::uint64_t count = 0;  ///< elements; of one part in all_gather and reduce_scatter
  std::optional<DataType> type = {};
  std::optional<ReduceOp> op = {};
  std::optional<int> root = {};
};

/// "all_reduce of 10 float32 (sum)", "broadcast of 3 int64 from rank 2", "barrier".
std::string to_string(const Call& call);

/// "rank 0 called barrier; ranks 1 to 3 called split": element r of `calls` is the call of rank r. Ranks are grouped,
/// so that the message stays short for a thousand ranks.
std::string who_called_what(const std::vector<std::string>& calls);

/// Equal for equal calls with equal numbers; equal for different ones with a probability of 2^-64.
std::uint64_t fingerprint(const Call& call, std::uint64_t sequence);

}  // namespace libtrain::detail
