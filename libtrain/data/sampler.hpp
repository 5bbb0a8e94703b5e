#pragma once

#include <cstdint>
#include <vector>

#include <libtrain/data/shard.hpp>

namespace libtrain::data {

/// What happens to the samples that do not fill the last global batch of an epoch.
enum class Remainder {
  pad,    ///< every rank gets equally many: a few samples from the start of the epoch's order are repeated
  drop,   ///< only full batches: the samples at the end of the epoch's order are left out
  exact,  ///< every sample once, for evaluation: in the last step ranks differ by up to one sample, some may get none
};

enum class Order { shuffled, sequential };

struct SamplerOptions {
  std::uint64_t dataset_size = 0;
  std::uint64_t batch_size = 1;  ///< samples per rank and step
  std::uint64_t seed = 0;
  Order order = Order::shuffled;
  Remainder remainder = Remainder::pad;
};

/// Says which samples a rank reads in a step: a pure function of seed, epoch, step and shard, with no state.
///
/// The order of an epoch is one permutation of the data set that does not depend on the world size W. With B samples
/// per rank, global step s takes positions [s*W*B, (s+1)*W*B) of it, and rank r the r-th contiguous slice of B. The
/// last global batch may be smaller; it is divided into W contiguous slices of equal size (pad: after repeating at most
/// W-1 samples; exact: equal within one sample). Immutable: any thread may call it.
class Sampler {
 public:
  /// Throws UsageError for an empty data set, a batch size of zero, a rank outside its world, or `drop` where one
  /// global batch is larger than the data set.
  explicit Sampler(const SamplerOptions& options, Shard shard = {});

  /// The samples of this rank in step `step` of `epoch`. Throws UsageError unless `step` < batches_per_epoch().
  std::vector<std::uint64_t> batch(std::uint64_t epoch, std::uint64_t step) const;

  /// The number of steps of an epoch, the same on every rank.
  std::uint64_t batches_per_epoch() const { return steps_; }

  /// How many samples an epoch repeats over all ranks together; 0 unless the remainder is padded.
  std::uint64_t padding() const;

 private:
  SamplerOptions options_;
  Shard shard_;
  std::uint64_t global_batch_ = 0;
  std::uint64_t positions_ = 0;  // of an epoch's order, repeated ones included, dropped ones not
  std::uint64_t steps_ = 0;
};

}  // namespace libtrain::data
