#include <libtrain/numeric/detail/arithmetic.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/numeric/detail/elements.hpp>

namespace libtrain::detail {

namespace {

LIBTRAIN_VECTOR_CLONES void combine_elements(void* accumulator, const void* operand, std::size_t count, DataType type,
                                             ReduceOp op) {
  with_element(type, [&]<typename T>(T) __attribute__((always_inline)) {
    with_operation(op, [&]<typename Op>(Op) __attribute__((always_inline)) {
      auto* __restrict a = static_cast<T*>(accumulator);
      const auto* __restrict b = static_cast<const T*>(operand);
      for (std::size_t i = 0; i < count; ++i) a[i] = narrow<T>(Op::combine(widen(a[i]), widen(b[i])));
    });
  });
}

LIBTRAIN_VECTOR_CLONES void divide_by(float* data, float divisor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) data[i] /= divisor;
}

LIBTRAIN_VECTOR_CLONES void divide_by(double* data, double divisor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) data[i] /= divisor;
}

[[noreturn]] void throw_unsupported(std::string_view what, DataType type) {
  throw UsageError(text("Host arithmetic cannot ", what, " ", to_string(type), ". Convert to another type."));
}

}  // namespace

void combine(void* accumulator, const void* operand, std::size_t count, DataType type, ReduceOp op) {
  if (size_of(type) == 2) throw_unsupported("combine", type);  // it would round at every step
  combine_elements(accumulator, operand, count, type, op);
}

void divide(void* data, std::size_t count, DataType type, int divisor) {
  if (type == DataType::float32) return divide_by(static_cast<float*>(data), static_cast<float>(divisor), count);
  if (type == DataType::float64) return divide_by(static_cast<double*>(data), divisor, count);
  throw_unsupported("average", type);
}

}  // namespace libtrain::detail
