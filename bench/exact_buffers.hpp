#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <bench/all_reduce_case.hpp>
#include <libtrain/comm/communicator.hpp>

namespace libtrain::bench {

/// This rank's input and output of an all-reduce (one tensor where it is in place), and what must come out of known
/// values: whole numbers so small that every type holds their combination exactly (bfloat16 sums up to 36 ranks).
class ExactBuffers {
 public:
  ExactBuffers(Communicator& communicator, const AllReduceCase& measured);

  const at::Tensor& input() const { return input_; }
  const at::Tensor& output() const { return output_; }

  /// Values that differ between ranks.
  void fill();

  /// Zeros, or ones for products: values that any number of calls leaves as they are.
  void clear();

  /// The elements that are not what `fill` and one call must leave; out of place, those of the input too.
  std::int64_t count_wrong() const;

 private:
  at::Tensor values_of(int rank) const;
  at::Tensor expected() const;
  at::Tensor spread(const at::Tensor& period) const;

  AllReduceCase case_;
  int rank_;
  int world_size_;
  at::Tensor input_;
  at::Tensor output_;
};

}  // namespace libtrain::bench
