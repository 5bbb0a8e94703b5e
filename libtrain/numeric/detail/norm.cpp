// Compiled with -ffp-contract=off, for the same bits in all clones.

#include <libtrain/numeric/detail/norm.hpp>

#include <cmath>

#include <libtrain/base/detail/vector_clones.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/numeric/detail/elements.hpp>
#include <libtrain/numeric/detail/square_lanes.hpp>

namespace libtrain::detail {

namespace {

struct Squares : AddedLanes {
  static LIBTRAIN_INLINED double part(double value) { return value * value; }
};

struct Magnitudes : AddedLanes {
  static LIBTRAIN_INLINED double part(double value) { return std::abs(value); }
};

struct Largest : Magnitudes {
  static LIBTRAIN_INLINED double join(double a, double b) { return Maximum::combine(a, b); }
};

// Enough lanes that the inner loop stays a loop, which the compiler vectorises, and that a lane's sum is ready when it
// is needed again.
template <typename Part, typename T>
LIBTRAIN_INLINED double join_all(const T* values, std::size_t count) {
  double lanes[kSquareLanes] = {};
  std::size_t begin = 0;
  for (; count - begin >= kSquareLanes; begin += kSquareLanes) {
    for (std::size_t lane = 0; lane < kSquareLanes; ++lane) {
      lanes[lane] = Part::join(lanes[lane], Part::part(static_cast<double>(widen(values[begin + lane]))));
    }
  }
  for (std::size_t lane = 0; lane < count - begin; ++lane) {
    lanes[lane] = Part::join(lanes[lane], Part::part(static_cast<double>(widen(values[begin + lane]))));
  }
  return join_lanes<Part>(lanes);
}

template <typename Part>
LIBTRAIN_INLINED double join_all_of(const void* values, std::size_t count, DataType type) {
  if (type == DataType::float32) return join_all<Part>(static_cast<const float*>(values), count);
  if (type == DataType::float64) return join_all<Part>(static_cast<const double*>(values), count);
  if (type == DataType::float16) return join_all<Part>(static_cast<const Float16*>(values), count);
  return join_all<Part>(static_cast<const BFloat16*>(values), count);
}

LIBTRAIN_VECTOR_CLONES double squares(const void* values, std::size_t count, DataType type) {
  return join_all_of<Squares>(values, count, type);
}

LIBTRAIN_VECTOR_CLONES double magnitudes(const void* values, std::size_t count, DataType type) {
  return join_all_of<Magnitudes>(values, count, type);
}

LIBTRAIN_VECTOR_CLONES double largest(const void* values, std::size_t count, DataType type) {
  return join_all_of<Largest>(values, count, type);
}

void require_floating(DataType type) {
  if (!is_floating(type)) throw UsageError(text("Norms are not computed for ", to_string(type), ". Pass floats."));
}

}  // namespace

double sum_of_squares(const void* values, std::size_t count, DataType type) {
  require_floating(type);
  return squares(values, count, type);
}

double sum_of_magnitudes(const void* values, std::size_t count, DataType type) {
  require_floating(type);
  return magnitudes(values, count, type);
}

double largest_magnitude(const void* values, std::size_t count, DataType type) {
  require_floating(type);
  return largest(values, count, type);
}

}  // namespace libtrain::detail
