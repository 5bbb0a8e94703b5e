#pragma once

#include <cstddef>

#include <libtrain/base/detail/vector_clones.hpp>

namespace libtrain::detail {

/// The number of partial sums of a sum of squares: element i is added to sum i modulo this. Vectors of any width then
/// add in the same order, and the compiler need not be allowed to reorder.
constexpr std::size_t kSquareLanes = 64;

struct AddedLanes {
  static LIBTRAIN_INLINED double join(double a, double b) { return a + b; }
};

/// Joins all lanes pairwise, since the error of a sum grows with the depth of its tree. Overwrites the lanes.
template <typename Lanes>
LIBTRAIN_INLINED double join_lanes(double (&lanes)[kSquareLanes]) {
  for (std::size_t half = kSquareLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] = Lanes::join(lanes[lane], lanes[lane + half]);
  }
  return lanes[0];
}

struct SquareLanes {
  double sums[kSquareLanes] = {};

  LIBTRAIN_INLINED void add(std::size_t lane, double value) { sums[lane] += value * value; }

  /// Overwrites the lanes.
  LIBTRAIN_INLINED double total() { return join_lanes<AddedLanes>(sums); }
};

}  // namespace libtrain::detail
