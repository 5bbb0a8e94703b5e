#pragma once

#include <cstdint>

namespace libtrain::models::detail {

/// What an operator drops: each number with this probability, and the others are divided by the probability to stay.
struct Dropout {
  double probability = 0;  ///< 0 drops nothing
  std::uint64_t seed = 0;  ///< of this operator in this step
};

/// Our own loops take widths that are multiples of this.
inline constexpr std::int64_t kWidthMultiple = 16;

}  // namespace libtrain::models::detail
