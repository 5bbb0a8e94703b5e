#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <libtrain/data/shard.hpp>

namespace libtrain::data {

/// What happens to the samples that do not fill the last global batch of an epoch.
enum class Remainder {
  pad,     ///< every rank gets equally many: a few samples from the start of the epoch's order are repeated
  drop,    ///< only full batches: the samples at the end of the epoch's order are left out
  exact,   ///< every sample once, for evaluation: in the last step ranks differ by up to one sample, some may get none,
           ///< of a data set with fewer samples than ranks even none at all
  uneven,  ///< as exact, for training with ranks that join: a rank without a sample in the last step has one batch less
};

enum class Order {
  shuffled,    ///< one permutation of all samples
  sequential,  ///< as the data set numbers them
  blocks,      ///< as BlockOrder: few of SamplerOptions::blocks are read at a time
};

struct SamplerOptions {
  std::uint64_t dataset_size = 0;
  std::uint64_t batch_size = 1;  ///< samples per rank and step
  std::uint64_t seed = 0;
  Order order = Order::shuffled;
  Remainder remainder = Remainder::pad;
  /// For Order::blocks: the sizes of consecutive runs of samples that lie in one file, dataset_size together.
  std::vector<std::uint64_t> blocks = {};
  std::uint64_t blocks_at_once = 16;  ///< for Order::blocks: how many are read, and shuffled together, at a time
};

/// The order of one epoch: the sample at a position in [0, dataset_size), else UsageError. Any thread may call it, and
/// copies are cheap.
using EpochOrder = std::function<std::uint64_t(std::uint64_t position)>;

/// Says which samples a rank reads in a step: a pure function of seed, epoch, step and shard, with no state.
///
/// The order of an epoch does not depend on the world size W. With B samples per rank, global step s takes positions
/// [s*W*B, (s+1)*W*B) of it, and rank r the r-th contiguous slice of B. The last global batch may be smaller; it is
/// divided into W contiguous slices of equal size (pad: after repeating at most W-1 samples; exact and uneven: equal
/// within one sample). With Order::blocks the slices are those of the global batch sorted by the samples' numbers, each
/// in the order of the epoch: a block, of which a whole or a part is read at once, is then read by few ranks.
///
/// A run that goes on in the middle of an epoch gives the position `from` which it had reached. Steps count from there,
/// step s taking positions [from + s*W*B, from + (s+1)*W*B), and the remainder is that of the samples which are left:
/// whatever W and B were before, nothing is read again or skipped where the run goes on. All functions throw UsageError
/// where `from` is beyond the data set; at its end there is no step left. Immutable: any thread may call it.
class Sampler {
 public:
  /// Throws UsageError for an empty data set, a batch size of zero, a rank outside its world, `drop` where one global
  /// batch is larger than the data set, `uneven` where the data set has fewer samples than ranks, and Order::blocks
  /// with blocks that are not exactly the data set or with 0 `blocks_at_once`.
  explicit Sampler(SamplerOptions options, Shard shard = {});

  /// The order of `epoch`, the same on every rank. Order::blocks takes time and memory in proportion to the number of
  /// blocks here: make it once per epoch.
  EpochOrder order(std::uint64_t epoch) const;

  /// The samples of this rank in step `step`, of an epoch with the order `epoch_order`. Throws UsageError unless `step`
  /// < batches(from).
  std::vector<std::uint64_t> batch(const EpochOrder& epoch_order, std::uint64_t step, std::uint64_t from = 0) const;

  /// A number other than 0 that tells orders apart which differ in kind, in blocks or in `blocks_at_once`.
  std::uint64_t fingerprint() const;

  /// How many batches this rank has from a position on: steps(from) or, with `uneven`, perhaps one less.
  std::uint64_t batches(std::uint64_t from = 0) const;

  /// The number of steps from a position on, the same on every rank: the largest number of batches that any rank has.
  std::uint64_t steps(std::uint64_t from = 0) const;

  /// The position once `steps_done` steps from a position on have been consumed by all ranks; a number above
  /// steps(from) counts as that. At most dataset_size, and with `drop` less where samples were left out.
  std::uint64_t position_after(std::uint64_t steps_done, std::uint64_t from = 0) const;

  /// Whether an epoch has each sample once: none is repeated, none left out.
  bool covers_exactly_once() const { return end(0) == options_.dataset_size; }

 private:
  std::uint64_t end(std::uint64_t from) const;
  std::vector<std::uint64_t> neighbours(const EpochOrder& epoch_order, std::uint64_t start, std::uint64_t size,
                                        std::uint64_t begin, std::uint64_t count) const;

  SamplerOptions options_;
  std::uint64_t rank_ = 0;
  std::uint64_t world_size_ = 1;
  std::uint64_t global_batch_ = 1;
};

}  // namespace libtrain::data
