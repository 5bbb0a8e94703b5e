#pragma once

#include <cstdint>
#include <type_traits>

#include <libtrain/base/detail/vector_clones.hpp>
#include <libtrain/numeric/data_type.hpp>
#include <libtrain/numeric/detail/float16.hpp>

namespace libtrain::detail {

/// The end of all operations except the average.
struct Unscaled {
  template <typename W>
  static LIBTRAIN_INLINED W finish(W value, W /*inputs*/) {
    return value;
  }
};

/// Integers wrap at overflow.
struct Sum : Unscaled {
  template <typename W>
  static LIBTRAIN_INLINED W combine(W a, W b) {
    if constexpr (std::is_integral_v<W>) {
      using Unsigned = std::make_unsigned_t<W>;
      return static_cast<W>(static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
    } else {
      return a + b;
    }
  }
};

struct Average : Sum {
  template <typename W>
  static LIBTRAIN_INLINED W finish(W sum, W inputs) {
    return static_cast<W>(sum / inputs);
  }
};

struct Product : Unscaled {
  template <typename W>
  static LIBTRAIN_INLINED W combine(W a, W b) {
    if constexpr (std::is_integral_v<W>) {
      using Unsigned = std::make_unsigned_t<W>;
      return static_cast<W>(static_cast<Unsigned>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b)));
    } else {
      return a * b;
    }
  }
};

// The result is NaN if any input is NaN: peers must not hide a diverging rank.
struct Minimum : Unscaled {
  template <typename W>
  static LIBTRAIN_INLINED W combine(W a, W b) {
    return b < a || b != b ? b : a;
  }
};

struct Maximum : Unscaled {
  template <typename W>
  static LIBTRAIN_INLINED W combine(W a, W b) {
    return a < b || b != b ? b : a;
  }
};

/// Calls `body` with an element of the type that `type` names.
template <typename Body>
LIBTRAIN_INLINED void with_element(DataType type, const Body& body) {
  switch (type) {
    case DataType::float32:
      return body(float{});
    case DataType::float64:
      return body(double{});
    case DataType::float16:
      return body(Float16{});
    case DataType::bfloat16:
      return body(BFloat16{});
    case DataType::int32:
      return body(std::int32_t{});
    case DataType::int64:
      return body(std::int64_t{});
    case DataType::uint8:
      return body(std::uint8_t{});
  }
}

/// Calls `body` with the function object of `op`.
template <typename Body>
LIBTRAIN_INLINED void with_operation(ReduceOp op, const Body& body) {
  switch (op) {
    case ReduceOp::sum:
      return body(Sum{});
    case ReduceOp::average:
      return body(Average{});
    case ReduceOp::minimum:
      return body(Minimum{});
    case ReduceOp::maximum:
      return body(Maximum{});
    case ReduceOp::product:
      return body(Product{});
  }
}

}  // namespace libtrain::detail
