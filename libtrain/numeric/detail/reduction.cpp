#include <libtrain/numeric/detail/reduction.hpp>

#include <algorithm>
#include <cstring>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/numeric/detail/elements.hpp>

namespace libtrain::detail {

namespace {

using Inputs = std::span<const void* const>;
using Outputs = std::span<void* const>;

// The data of a block fits into the first-level cache.
constexpr std::size_t kBlockElements = 1024;

// One loop in each function: compilers do not vectorise the loops of larger ones.

LIBTRAIN_VECTOR_CLONES void widen_into(void* __restrict sum, const void* __restrict input, std::size_t count,
                                       DataType type) {
  with_element(type, [&]<typename T>(T) __attribute__((always_inline)) {
    auto* __restrict target = static_cast<Wide<T>*>(sum);
    const auto* __restrict source = static_cast<const T*>(input);
    for (std::size_t i = 0; i < count; ++i) target[i] = widen(source[i]);
  });
}

LIBTRAIN_VECTOR_CLONES void combine_into(void* __restrict sum, const void* __restrict input, std::size_t count,
                                         DataType type, ReduceOp op) {
  with_element(type, [&]<typename T>(T) __attribute__((always_inline)) {
    with_operation(op, [&]<typename Op>(Op) __attribute__((always_inline)) {
      auto* __restrict target = static_cast<Wide<T>*>(sum);
      const auto* __restrict source = static_cast<const T*>(input);
      for (std::size_t i = 0; i < count; ++i) target[i] = Op::combine(target[i], widen(source[i]));
    });
  });
}

LIBTRAIN_VECTOR_CLONES void finish_into(void* __restrict result, const void* __restrict sum, std::size_t count,
                                        DataType type, ReduceOp op, int inputs) {
  with_element(type, [&]<typename T>(T) __attribute__((always_inline)) {
    with_operation(op, [&]<typename Op>(Op) __attribute__((always_inline)) {
      auto* __restrict target = static_cast<T*>(result);
      const auto* __restrict source = static_cast<const Wide<T>*>(sum);
      const auto divisor = static_cast<Wide<T>>(inputs);
      for (std::size_t i = 0; i < count; ++i) target[i] = narrow<T>(Op::finish(source[i], divisor));
    });
  });
}

// Two ranks in place, the most frequent case: without an accumulator. The outputs may be the inputs, element by
// element, which is not a dependence between iterations.
LIBTRAIN_VECTOR_CLONES void reduce_two(Inputs inputs, Outputs outputs, std::size_t count, DataType type, ReduceOp op) {
  with_element(type, [&]<typename T>(T) __attribute__((always_inline)) {
    with_operation(op, [&]<typename Op>(Op) __attribute__((always_inline)) {
      const auto* a = static_cast<const T*>(inputs[0]);
      const auto* b = static_cast<const T*>(inputs[1]);
      auto* x = static_cast<T*>(outputs[0]);
      auto* y = static_cast<T*>(outputs[1]);
#pragma GCC ivdep
      for (std::size_t i = 0; i < count; ++i) {
        const T result = narrow<T>(Op::finish(Op::combine(widen(a[i]), widen(b[i])), Wide<T>{2}));
        x[i] = result;
        y[i] = result;
      }
    });
  });
}

void reduce_block(Inputs inputs, Outputs outputs, std::size_t begin, std::size_t count, DataType type, ReduceOp op) {
  alignas(64) std::byte sum[kBlockElements * sizeof(double)];
  alignas(64) std::byte result[kBlockElements * sizeof(double)];
  const auto offset = begin * size_of(type);
  const auto block_of = [offset](const void* input) { return static_cast<const std::byte*>(input) + offset; };
  widen_into(sum, block_of(inputs[0]), count, type);
  for (const void* input : inputs.subspan(1)) combine_into(sum, block_of(input), count, type, op);
  const bool is_finished = size_of(type) != 2 && op != ReduceOp::average;
  if (!is_finished) finish_into(result, sum, count, type, op, static_cast<int>(inputs.size()));
  const auto* block = is_finished ? sum : result;
  for (void* output : outputs) std::memcpy(static_cast<std::byte*>(output) + offset, block, count * size_of(type));
}

}  // namespace

void reduce_blocks(Inputs inputs, Outputs outputs, std::size_t count, DataType type, ReduceOp op) {
  if (op == ReduceOp::average && !is_floating(type)) {
    throw UsageError(text("Host arithmetic cannot average ", to_string(type), ". Convert to another type."));
  }
  if (inputs.size() == 2 && outputs.size() == 2) return reduce_two(inputs, outputs, count, type, op);
  for (std::size_t begin = 0; begin < count; begin += kBlockElements) {
    reduce_block(inputs, outputs, begin, std::min(kBlockElements, count - begin), type, op);
  }
}

}  // namespace libtrain::detail
