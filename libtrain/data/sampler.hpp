#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <libtrain/data/shard.hpp>

namespace libtrain::data {

/// What happens to the samples that do not fill the last global batch of an epoch.
enum class Remainder {
  pad,     ///< every rank gets the same number: a few samples from the start of the epoch's order are repeated
  drop,    ///< only full batches: the samples at the end of the epoch's order are left out
  exact,   ///< every sample once, for evaluation: in the last step ranks differ by up to one sample, and some may get
           ///< none; with fewer samples than ranks some get none in the whole epoch
  uneven,  ///< as exact, for training with ranks that join: a rank without a sample in the last step has one batch less
};

enum class Order {
  shuffled,    ///< one permutation of all samples
  sequential,  ///< the order of the data set
  blocks,      ///< the order of BlockOrder: few of SamplerOptions::blocks are read at a time
};

/// What counts as the tokens of a batch by tokens.
enum class TokenCount {
  packed,  ///< the samples' own, for batches without padding
  padded,  ///< the number of samples times the longest one, for batches that are padded to it
};

struct SamplerOptions {
  std::uint64_t dataset_size = 0;
  std::uint64_t batch_size = 1;  ///< samples per rank and step; does not count with `max_tokens`
  /// Batches by tokens: a step takes samples as long as they have at most so many tokens per rank together. 0: batches
  /// of batch_size samples.
  std::uint64_t max_tokens = 0;
  std::vector<std::uint32_t> lengths = {};      ///< for `max_tokens`: the number of tokens of each sample
  TokenCount token_count = TokenCount::packed;  ///< for `max_tokens`
  std::uint64_t seed = 0;
  Order order = Order::shuffled;
  Remainder remainder = Remainder::pad;
  /// For Order::blocks: the number of consecutive samples in each file; the sum is dataset_size.
  std::vector<std::uint64_t> blocks = {};
  std::uint64_t blocks_at_once = 16;  ///< for Order::blocks: number of blocks that are shuffled together
  /// Repeated augmentation (Hoffer et al., "Augment your batch", CVPR 2020): an epoch has as many samples as otherwise,
  /// but of only one sample in so many, each so often, at distances of kRepetitionDistance positions.
  std::uint64_t repetitions = 1;
  /// For Order::shuffled without repetitions: the group of each sample, such as that of its aspect ratio
  /// (aspect_ratio_groups()), so that a global batch has samples of one group. Empty: none.
  std::vector<std::uint8_t> groups = {};
  /// For `groups`: samples of one group that follow each other. It should be a multiple of the global batch.
  std::uint64_t group_chunk = 64;
};

/// Positions of an epoch's order between two repetitions of a sample: a batch of at most so many has none twice. Fewer
/// at the end of the epoch, and with `max_tokens`, which divides a step by the lengths of its samples.
inline constexpr std::uint64_t kRepetitionDistance = 256;

/// The order of one epoch: returns the sample at a position in [0, dataset_size), and throws UsageError for others;
/// repetition number k of sample i is i + k * dataset_size. Any thread may call it, and copies are cheap.
class EpochOrder {
 public:
  EpochOrder(std::uint64_t epoch, std::function<std::uint64_t(std::uint64_t position)> sample_at)
      : epoch_(epoch), sample_at_(std::move(sample_at)) {}

  std::uint64_t operator()(std::uint64_t position) const { return sample_at_(position); }
  std::uint64_t epoch() const { return epoch_; }

 private:
  std::uint64_t epoch_;
  std::function<std::uint64_t(std::uint64_t position)> sample_at_;
};

namespace detail {

class TokenSteps;

}  // namespace detail

/// Chooses the samples that a rank reads in a step: a pure function of seed, epoch, step and shard, without state.
///
/// The order of an epoch does not depend on the world size W. With B samples per rank, global step s takes positions
/// [s*W*B, (s+1)*W*B) of it, and rank r the r-th contiguous slice of B. The last global batch may be smaller; it is
/// divided into W contiguous slices of equal size (pad: after repeating at most W-1 samples; exact and uneven: equal
/// within one sample). With Order::blocks, but without repetitions, the slices are those of the global batch sorted by
/// sample number, each in the order of the epoch, so that few ranks read the same block (a reader may read a block as a
/// whole).
///
/// With `max_tokens` M a step takes consecutive positions as long as their samples have at most W*M tokens: which ones
/// depends on W*M alone, so W ranks with M make the steps of one rank with W*M. They are divided among the ranks by
/// length, the longest first: packed ones each to the rank with the fewest tokens, padded ones to each rank in turn. A
/// rank reads its own in the order of the epoch. Ranks have M tokens or less on average, and none has more than M and
/// (1 - 1/W) of the step's longest sample; with TokenCount::packed all have about equally many.
/// Only the last step of an epoch may have fewer samples than ranks: `pad` repeats samples from the start of the order
/// until each rank has one, `exact` and `uneven` leave ranks without one, and `drop` leaves out the last step, even
/// if the end of the data does not cut it short. Since the number of steps depends on the order, functions that count
/// steps then need the epoch; for batches of equal size they do not use it.
///
/// With K groups the order consists of chunks of C = `group_chunk` samples; less than C samples in random order follow
/// them. At most K - 1 chunks have samples of more than one group. Hence in an epoch that is read from its start
/// - with W*B a divisor of C, at most K - 1 global batches of the chunks have samples of several groups,
/// - with W*B below C, at most a share of W*B / C more,
/// - with B a divisor of C, a rank's full batch is as in the first case for any W, but ranks may have different groups.
/// Every sample is read as often as without groups; with W*B a divisor of C, `drop` leaves out the same samples.
///
/// A run that resumes in the middle of an epoch passes the position `from` that it had reached. Steps count from there:
/// step s takes positions [from + s*W*B, from + (s+1)*W*B), and the remainder is that of the samples that are left. No
/// sample is repeated or skipped, whatever W and B were before. Groups count as if the epoch was read from its start if
/// `from` is a multiple of W*B; otherwise a step may have the samples of neighbouring chunks until the epoch ends. All
/// functions throw UsageError if `from` is beyond the end of the data set; at its end no step is left. Immutable: any
/// thread may call it.
class Sampler {
 public:
  /// Throws UsageError for an empty data set, a batch size of zero, a rank outside its world, `drop` with a global
  /// batch larger than the data set (with `max_tokens`: if all of it fits into one step), `uneven` with fewer samples
  /// than ranks, and Order::blocks with blocks that do not add up to the data set or with 0 `blocks_at_once`, 0 or more
  /// than 1000 `repetitions`, and groups with another order or repetitions, of another number of samples or of 2^32 and
  /// more, or with a `group_chunk` of 0; and for `lengths` of another number of samples, without `max_tokens`, of 0 or
  /// of more than `max_tokens`.
  explicit Sampler(SamplerOptions options, Shard shard = {});

  /// The order of `epoch`, the same on every rank. With Order::blocks the call takes time and memory proportional to
  /// the number of blocks, with groups to the number of samples (4 bytes each, which copies share): call it once per
  /// epoch.
  EpochOrder order(std::uint64_t epoch) const;

  /// The samples of this rank in step `step` of an epoch with the order `epoch_order`, with repetitions as there.
  /// Throws UsageError unless `step` < batches(from, epoch_order.epoch()).
  std::vector<std::uint64_t> batch(const EpochOrder& epoch_order, std::uint64_t step, std::uint64_t from = 0) const;

  /// The samples of this rank, and of all ranks together, in such a step.
  struct StepSamples {
    std::uint64_t of_rank = 0;
    std::uint64_t of_all = 0;
    bool are_even = true;  ///< all ranks have equally many
  };
  /// Throws UsageError unless `step` < steps(from, epoch).
  StepSamples samples(std::uint64_t step, std::uint64_t from = 0, std::uint64_t epoch = 0) const;

  /// A hash of the kind of order, the blocks, `blocks_at_once`, `repetitions`, the groups and `group_chunk`; never 0.
  std::uint64_t fingerprint() const { return fingerprint_; }

  /// The number of batches of this rank from a position on: steps(from, epoch) or, with `uneven`, possibly one less.
  std::uint64_t batches(std::uint64_t from = 0, std::uint64_t epoch = 0) const;

  /// The number of steps from a position on, the same on every rank: the largest number of batches that any rank has.
  /// With `max_tokens` the first call for an epoch and a position takes time proportional to the number of samples.
  std::uint64_t steps(std::uint64_t from = 0, std::uint64_t epoch = 0) const;

  /// The position after all ranks have consumed `steps_done` steps from a position on; at most steps(from, epoch) steps
  /// count. At most dataset_size, and less if `drop` leaves samples out.
  std::uint64_t position_after(std::uint64_t steps_done, std::uint64_t from = 0, std::uint64_t epoch = 0) const;

  Remainder remainder() const { return options_.remainder; }
  std::uint64_t batch_size() const { return options_.batch_size; }
  std::uint64_t max_tokens() const { return options_.max_tokens; }
  TokenCount token_count() const { return options_.token_count; }

  /// Whether every epoch has every sample exactly once.
  bool covers_exactly_once() const;

 private:
  EpochOrder single_order(std::uint64_t epoch) const;
  std::shared_ptr<const detail::TokenSteps> token_steps(std::uint64_t from, std::uint64_t epoch) const;
  void require_position(std::uint64_t from) const;

  /// This rank's part of a step: positions [begin, begin + count) of the step's [start, start + size).
  struct Slice {
    std::uint64_t start = 0;
    std::uint64_t size = 0;
    std::uint64_t begin = 0;
    std::uint64_t count = 0;
  };

  std::uint64_t end(std::uint64_t from) const;
  Slice slice(std::uint64_t step, std::uint64_t from) const;
  std::vector<std::uint64_t> neighbours(const EpochOrder& epoch_order, const Slice& slice) const;

  SamplerOptions options_;
  std::uint64_t rank_ = 0;
  std::uint64_t world_size_ = 1;
  std::uint64_t global_batch_ = 1;
  std::uint64_t fingerprint_ = 0;

  struct Tokens;
  std::shared_ptr<Tokens> tokens_;  // null without max_tokens
};

}  // namespace libtrain::data
