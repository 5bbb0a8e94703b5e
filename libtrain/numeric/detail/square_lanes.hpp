#pragma once

#include <cstddef>

#include <libtrain/base/detail/vector_clones.hpp>

namespace libtrain::detail {

/// How many sums a sum of squares is made of: element i goes to sum i modulo this. Vectors of any width then add in the
/// same order, and the compiler needs no leave to reorder.
constexpr std::size_t kSquareLanes = 64;

struct AddedLanes {
  static LIBTRAIN_INLINED double join(double a, double b) { return a + b; }
};

/// All of them; pairs first, since errors of sums grow with the depth of the tree. Spoils the lanes.
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

  /// Spoils the lanes.
  LIBTRAIN_INLINED double total() { return join_lanes<AddedLanes>(sums); }
};

}  // namespace libtrain::detail
