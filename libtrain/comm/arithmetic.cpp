#include <libtrain/comm/arithmetic.hpp>

#include <algorithm>
#include <type_traits>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

// Sanitizers cannot run inside the resolver that picks a clone while the program is being loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define LIBTRAIN_VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define LIBTRAIN_VECTOR_CLONES
#endif

namespace libtrain::detail {

namespace {

#define LIBTRAIN_DEFINE_KERNELS(T)                                                                  \
  LIBTRAIN_VECTOR_CLONES void add(T* __restrict a, const T* __restrict b, std::size_t n) {          \
    for (std::size_t i = 0; i < n; ++i) a[i] = static_cast<T>(a[i] + b[i]);                         \
  }                                                                                                 \
  LIBTRAIN_VECTOR_CLONES void multiply(T* __restrict a, const T* __restrict b, std::size_t n) {     \
    for (std::size_t i = 0; i < n; ++i) a[i] = static_cast<T>(a[i] * b[i]);                         \
  }                                                                                                 \
  LIBTRAIN_VECTOR_CLONES void take_minimum(T* __restrict a, const T* __restrict b, std::size_t n) { \
    for (std::size_t i = 0; i < n; ++i) a[i] = b[i] < a[i] ? b[i] : a[i];                           \
  }                                                                                                 \
  LIBTRAIN_VECTOR_CLONES void take_maximum(T* __restrict a, const T* __restrict b, std::size_t n) { \
    for (std::size_t i = 0; i < n; ++i) a[i] = a[i] < b[i] ? b[i] : a[i];                           \
  }

LIBTRAIN_DEFINE_KERNELS(float)
LIBTRAIN_DEFINE_KERNELS(double)
LIBTRAIN_DEFINE_KERNELS(std::int32_t)
LIBTRAIN_DEFINE_KERNELS(std::int64_t)
LIBTRAIN_DEFINE_KERNELS(std::uint8_t)
#undef LIBTRAIN_DEFINE_KERNELS

LIBTRAIN_VECTOR_CLONES void divide_by(float* a, float divisor, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] /= divisor;
}
LIBTRAIN_VECTOR_CLONES void divide_by(double* a, double divisor, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] /= divisor;
}

template <typename T>
void combine_as(void* accumulator, const void* operand, std::size_t count, ReduceOp op) {
  auto* a = static_cast<T*>(accumulator);
  const auto* b = static_cast<const T*>(operand);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return add(a, b, count);
    case ReduceOp::minimum:
      return take_minimum(a, b, count);
    case ReduceOp::maximum:
      return take_maximum(a, b, count);
    case ReduceOp::product:
      return multiply(a, b, count);
  }
}

[[noreturn]] void throw_unsupported(std::string_view what, DataType type) {
  throw UsageError(text("Host arithmetic cannot ", what, " ", to_string(type), "."));
}

}  // namespace

void combine(void* accumulator, const void* operand, std::size_t count, DataType type, ReduceOp op) {
  switch (type) {
    case DataType::float32:
      return combine_as<float>(accumulator, operand, count, op);
    case DataType::float64:
      return combine_as<double>(accumulator, operand, count, op);
    case DataType::int32:
      return combine_as<std::int32_t>(accumulator, operand, count, op);
    case DataType::int64:
      return combine_as<std::int64_t>(accumulator, operand, count, op);
    case DataType::uint8:
      return combine_as<std::uint8_t>(accumulator, operand, count, op);
    case DataType::float16:
    case DataType::bfloat16:
      break;
  }
  throw_unsupported("combine", type);
}

void divide(void* data, std::size_t count, DataType type, int divisor) {
  if (type == DataType::float32) return divide_by(static_cast<float*>(data), static_cast<float>(divisor), count);
  if (type == DataType::float64) return divide_by(static_cast<double*>(data), divisor, count);
  throw_unsupported("average", type);
}

}  // namespace libtrain::detail
