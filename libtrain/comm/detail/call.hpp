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

/// Which collective was called, in every respect in which the ranks must agree.
struct Call {
  CallKind kind = CallKind::barrier;
  std::uint64_t count = 0;  ///< elements; of one part in all_gather and reduce_scatter
  std::optional<DataType> type = {};
  std::optional<ReduceOp> op = {};
  std::optional<int> root = {};
};

/// "all_reduce of 10 float32 (sum)", "broadcast of 3 int64 from rank 2", "barrier".
std::string to_string(const Call& call);

/// "rank 0 called barrier; ranks 1 to 3 called split": element r of `calls` is what rank r called. Grouped, so that a
/// thousand ranks still give a message one can read.
std::string who_called_what(const std::vector<std::string>& calls);

/// Equal for equal calls with equal numbers, and for others with a probability of 2^-64.
std::uint64_t fingerprint(const Call& call, std::uint64_t sequence);

}  // namespace libtrain::detail
