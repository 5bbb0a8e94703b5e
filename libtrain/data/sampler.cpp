#include <libtrain/data/sampler.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/splitmix.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/detail/block_order.hpp>
#include <libtrain/data/detail/group_order.hpp>
#include <libtrain/data/detail/permutation.hpp>
#include <libtrain/data/detail/token_steps.hpp>

namespace libtrain::data {

namespace {

constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kMostRepetitions = 1000;

std::uint64_t ceiling_of_ratio(std::uint64_t a, std::uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

void check_remainder(const SamplerOptions& options, std::uint64_t world) {
  if (options.remainder == Remainder::drop && options.max_tokens == 0 &&
      options.dataset_size < options.batch_size * world) {
    throw UsageError(text("An epoch would have no step: ", world, " ranks with a batch size of ", options.batch_size,
                          " need ", options.batch_size * world, " samples for one full global batch, the data set has ",
                          options.dataset_size, ". Use a smaller batch size, or Remainder::pad instead of drop."));
  }
  if (options.remainder == Remainder::uneven && options.dataset_size < world) {
    throw UsageError(text("A data set of ", options.dataset_size, " samples leaves some of ", world,
                          " ranks without any in an epoch. Use at most ", options.dataset_size,
                          " ranks, or pad instead of uneven."));
  }
}

void check_blocks(const SamplerOptions& options) {
  if (options.order != Order::blocks) return;
  if (options.blocks.empty()) {
    throw UsageError(
        "Order::blocks needs the number of samples in each file, but the data set's blocks() is empty. Use "
        "Order::shuffled, or data in shards.");
  }
  const std::uint64_t samples = detail::BlockOrder(options.blocks, options.blocks_at_once, options.seed, 0).size();
  if (samples != options.dataset_size) {
    throw UsageError(text("The ", options.blocks.size(), " blocks have ", samples, " samples, but the data set has ",
                          options.dataset_size, ". The sizes of the blocks must add up to that of the data set."));
  }
}

void check_groups(const SamplerOptions& options) {
  if (options.groups.empty()) return;
  if (options.order != Order::shuffled || options.repetitions != 1) {
    throw UsageError("Groups of samples need Order::shuffled and no repetitions. Leave out the groups, or the other.");
  }
  if (options.dataset_size > std::numeric_limits<std::uint32_t>::max()) {
    throw UsageError(text("The data set has ", options.dataset_size, " samples, too many for groups, which work up to ",
                          std::numeric_limits<std::uint32_t>::max(), ". Leave out the groups."));
  }
  if (options.groups.size() != options.dataset_size) {
    throw UsageError(text("There are the groups of ", options.groups.size(), " samples, but the data set has ",
                          options.dataset_size, ". Give one for each sample."));
  }
  if (options.group_chunk == 0) throw UsageError("group_chunk is 0. It must be at least 1.");
}

void check_lengths(const SamplerOptions& options, std::uint64_t world) {
  if (options.max_tokens == 0) {
    if (options.lengths.empty()) return;
    throw UsageError("There are the lengths of samples, but max_tokens is 0. Set it, or leave out the lengths.");
  }
  if (options.lengths.size() != options.dataset_size) {
    throw UsageError(text("There are the lengths of ", options.lengths.size(), " samples, but the data set has ",
                          options.dataset_size, ". Batches by tokens need one for each sample."));
  }
  if (options.max_tokens > kMax / world) {
    throw UsageError(text("max_tokens is ", options.max_tokens, ", too many for ", world, " ranks."));
  }
  for (std::uint64_t sample = 0; sample < options.dataset_size; ++sample) {
    const std::uint64_t length = options.lengths[sample];
    if (length >= 1 && length <= options.max_tokens) continue;
    throw UsageError(text("Sample ", sample, " has ", length, " tokens, expected 1 to max_tokens, which is ",
                          options.max_tokens, ". ", length == 0 ? "Leave it out." : "Raise max_tokens, or truncate."));
  }
  const auto tokens = options.token_count == TokenCount::packed
                          ? std::accumulate(options.lengths.begin(), options.lengths.end(), std::uint64_t{0})
                          : options.dataset_size * *std::ranges::max_element(options.lengths);
  if (options.remainder == Remainder::drop && tokens <= options.max_tokens * world) {
    throw UsageError(text("An epoch would have no full step: the data set has ", tokens, " tokens, a step up to ",
                          options.max_tokens * world, ". Use a smaller max_tokens, or pad instead of drop."));
  }
}

std::uint64_t fingerprint_of(const SamplerOptions& options) {
  using libtrain::detail::combine_keys;
  std::uint64_t hash = combine_keys(static_cast<std::uint64_t>(options.order), options.dataset_size);
  if (options.order == Order::blocks) {
    hash = combine_keys(hash, options.blocks_at_once);
    for (const std::uint64_t block : options.blocks) hash = combine_keys(hash, block);
  }
  if (options.repetitions > 1) hash = combine_keys(hash, options.repetitions);
  if (!options.groups.empty()) {
    hash = combine_keys(hash, options.group_chunk);
    for (const std::uint8_t group : options.groups) hash = combine_keys(hash, group);
  }
  return hash | 1;
}

void check(const SamplerOptions& options, Shard shard) {
  if (shard.world_size < 1 || shard.rank < 0 || shard.rank >= shard.world_size) {
    throw UsageError(text("Rank ", shard.rank, " is outside a world of ", shard.world_size, " ranks."));
  }
  if (options.dataset_size == 0) throw UsageError("The data set is empty. It must have at least one sample.");
  if (options.batch_size == 0) throw UsageError("batch_size is 0. It must be at least 1.");
  const auto world = static_cast<std::uint64_t>(shard.world_size);
  if (options.batch_size > kMax / world || options.dataset_size > kMax - world) {
    throw UsageError(text("A batch size of ", options.batch_size, " on ", world, " ranks over ", options.dataset_size,
                          " samples exceeds 64-bit arithmetic."));
  }
  if (options.repetitions == 0 || options.repetitions > kMostRepetitions ||
      options.dataset_size > kMax / options.repetitions) {
    throw UsageError(text("repetitions is ", options.repetitions, " for ", options.dataset_size,
                          " samples. Set it to a number from 1 to ", kMostRepetitions, "."));
  }
  check_remainder(options, world);
  check_blocks(options);
  check_groups(options);
  check_lengths(options, world);
}

}  // namespace

/// The steps of one epoch from a position on, for batches by tokens.
class detail::TokenSteps {
 public:
  /// `lengths` must outlive it.
  TokenSteps(EpochOrder order, const std::vector<std::uint32_t>& lengths, std::uint64_t from,
             const SamplerOptions& options, std::uint64_t world)
      : order_(std::move(order)), lengths_(lengths), from_(from), count_(options.token_count), world_(world) {
    starts_ = token_step_starts([this](std::uint64_t position) { return length_at(position); }, count_, from,
                                lengths_.size(), options.max_tokens * world);
    if (steps() == 0) return;
    if (options.remainder == Remainder::drop) starts_.pop_back();
    if (options.remainder == Remainder::pad) starts_.back() = std::max(starts_.back(), starts_[steps() - 1] + world);
  }

  std::uint64_t epoch() const { return order_.epoch(); }
  std::uint64_t from() const { return from_; }
  std::uint64_t steps() const { return starts_.size() - 1; }

  /// The position at which step `step` begins; that of steps() is the end.
  std::uint64_t start(std::uint64_t step) const { return starts_[step]; }

  /// The rank of each sample of a step.
  std::vector<std::uint32_t> ranks(std::uint64_t step) const {
    std::vector<std::uint32_t> lengths;
    for (std::uint64_t position = starts_[step]; position < starts_[step + 1]; ++position) {
      lengths.push_back(length_at(position));
    }
    return count_ == TokenCount::packed ? divide_by_tokens(lengths, world_) : assign_in_turn(lengths, world_);
  }

 private:
  std::uint32_t length_at(std::uint64_t position) const {
    const std::uint64_t size = lengths_.size();
    return lengths_[order_(position % size) % size];
  }

  const EpochOrder order_;
  const std::vector<std::uint32_t>& lengths_;
  const std::uint64_t from_;
  const TokenCount count_;
  const std::uint64_t world_;
  std::vector<std::uint64_t> starts_;
};

/// The lengths, and the steps that were asked for last: a run uses the same ones for a whole epoch. Copies of a sampler
/// share them.
struct Sampler::Tokens {
  explicit Tokens(std::vector<std::uint32_t> of_samples) : lengths(std::move(of_samples)) {}

  const std::vector<std::uint32_t> lengths;
  std::mutex mutex;
  std::shared_ptr<const detail::TokenSteps> last;
};

Sampler::Sampler(SamplerOptions options, Shard shard) : options_(std::move(options)) {
  check(options_, shard);
  rank_ = static_cast<std::uint64_t>(shard.rank);
  world_size_ = static_cast<std::uint64_t>(shard.world_size);
  global_batch_ = options_.batch_size * world_size_;
  fingerprint_ = fingerprint_of(options_);
  if (options_.max_tokens > 0) tokens_ = std::make_shared<Tokens>(std::exchange(options_.lengths, {}));
}

EpochOrder Sampler::order(std::uint64_t epoch) const {
  const auto single = single_order(epoch);
  if (options_.repetitions == 1) return single;
  return {epoch, [single, size = options_.dataset_size, repetitions = options_.repetitions](std::uint64_t position) {
            if (position >= size) return single(position);  // which throws
            // In a window each of its samples comes once, then each a second time, and so on.
            const std::uint64_t window = kRepetitionDistance * repetitions;
            const std::uint64_t start = position / window * window;
            const std::uint64_t distance = ceiling_of_ratio(std::min(window, size - start), repetitions);
            const std::uint64_t place = position - start;
            return single(start / repetitions + place % distance) + place / distance * size;
          }};
}

EpochOrder Sampler::single_order(std::uint64_t epoch) const {
  if (!options_.groups.empty()) {
    const auto grouped =
        std::make_shared<const detail::GroupOrder>(options_.groups, options_.group_chunk, options_.seed, epoch);
    return {epoch, [grouped](std::uint64_t position) { return (*grouped)(position); }};
  }
  if (options_.order == Order::shuffled) {
    return {epoch, detail::Permutation(options_.dataset_size, options_.seed, epoch)};
  }
  if (options_.order == Order::blocks) {
    const auto blocks =
        std::make_shared<const detail::BlockOrder>(options_.blocks, options_.blocks_at_once, options_.seed, epoch);
    return {epoch, [blocks](std::uint64_t position) { return (*blocks)(position); }};
  }
  return {epoch, [size = options_.dataset_size](std::uint64_t position) {
            if (position >= size)
              throw UsageError(text("Position ", position, " is outside a data set of ", size, " samples."));
            return position;
          }};
}

std::shared_ptr<const detail::TokenSteps> Sampler::token_steps(std::uint64_t from, std::uint64_t epoch) const {
  require_position(from);
  const std::lock_guard lock(tokens_->mutex);
  auto& last = tokens_->last;
  if (!last || last->epoch() != epoch || last->from() != from) {
    last = std::make_shared<const detail::TokenSteps>(order(epoch), tokens_->lengths, from, options_, world_size_);
  }
  return last;
}

std::vector<std::uint64_t> Sampler::batch(const EpochOrder& epoch_order, std::uint64_t step, std::uint64_t from) const {
  const std::uint64_t epoch = epoch_order.epoch();
  if (step >= batches(from, epoch)) {
    throw UsageError(text("Step ", step, " is past the end: the number of batches of rank ", rank_, " from position ",
                          from, " on is ", batches(from, epoch), "."));
  }
  if (tokens_) {
    const auto steps = token_steps(from, epoch);
    const std::vector<std::uint32_t> ranks = steps->ranks(step);
    std::vector<std::uint64_t> samples;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] == rank_) samples.push_back(epoch_order((steps->start(step) + i) % options_.dataset_size));
    }
    return samples;
  }
  const auto own = slice(step, from);
  // Neighbours may be repetitions of one sample.
  if (options_.order == Order::blocks && world_size_ > 1 && options_.repetitions == 1) {
    return neighbours(epoch_order, own);
  }

  std::vector<std::uint64_t> samples(own.count);
  for (std::uint64_t i = 0; i < own.count; ++i) samples[i] = epoch_order((own.begin + i) % options_.dataset_size);
  return samples;
}

Sampler::StepSamples Sampler::samples(std::uint64_t step, std::uint64_t from, std::uint64_t epoch) const {
  if (step >= steps(from, epoch)) {
    throw UsageError(
        text("Step ", step, " is past the end: there are ", steps(from, epoch), " steps from position ", from, " on."));
  }
  if (tokens_) {
    std::vector<std::uint64_t> of_ranks(world_size_);
    const auto ranks = token_steps(from, epoch)->ranks(step);
    for (const std::uint32_t rank : ranks) ++of_ranks[rank];
    return {.of_rank = of_ranks[rank_],
            .of_all = ranks.size(),
            .are_even = std::ranges::adjacent_find(of_ranks, std::not_equal_to<>{}) == of_ranks.end()};
  }
  const auto own = slice(step, from);
  return {.of_rank = own.count, .of_all = own.size, .are_even = own.size % world_size_ == 0};
}

Sampler::Slice Sampler::slice(std::uint64_t step, std::uint64_t from) const {
  const std::uint64_t start = from + step * global_batch_;
  const std::uint64_t size = std::min(global_batch_, end(from) - start);
  // The first `size % world_size_` ranks get one sample more. Written so that nothing overflows.
  const std::uint64_t begin = start + size / world_size_ * rank_ + std::min(rank_, size % world_size_);
  return {
      .start = start, .size = size, .begin = begin, .count = size / world_size_ + (rank_ < size % world_size_ ? 1 : 0)};
}

// The rank's slice of the sorted global batch, in the order of the epoch. In consecutive global batches of a window a
// rank reads the same blocks, because its slice covers about the same part of the window.
std::vector<std::uint64_t> Sampler::neighbours(const EpochOrder& epoch_order, const Slice& slice) const {
  using SampleAt = std::pair<std::uint64_t, std::uint64_t>;  // with its position, because samples can be repeated
  std::vector<SampleAt> batch(slice.size);
  for (std::uint64_t i = 0; i < slice.size; ++i) batch[i] = {epoch_order((slice.start + i) % options_.dataset_size), i};
  const auto first = batch.begin() + static_cast<std::ptrdiff_t>(slice.begin - slice.start);
  const auto last = first + static_cast<std::ptrdiff_t>(slice.count);
  if (first != batch.end()) std::nth_element(batch.begin(), first, batch.end());
  if (last != batch.end()) std::nth_element(first, last, batch.end());
  std::sort(first, last, [](const SampleAt& left, const SampleAt& right) { return left.second < right.second; });

  std::vector<std::uint64_t> samples;
  samples.reserve(slice.count);
  std::transform(first, last, std::back_inserter(samples), [](const SampleAt& each) { return each.first; });
  return samples;
}

std::uint64_t Sampler::batches(std::uint64_t from, std::uint64_t epoch) const {
  const std::uint64_t all = steps(from, epoch);
  if (options_.remainder != Remainder::uneven || all == 0) return all;
  const std::uint64_t last = tokens_ ? token_steps(from, epoch)->start(all - 1) : from + (all - 1) * global_batch_;
  return rank_ < options_.dataset_size - last ? all : all - 1;
}

std::uint64_t Sampler::steps(std::uint64_t from, std::uint64_t epoch) const {
  if (tokens_) return token_steps(from, epoch)->steps();
  return ceiling_of_ratio(end(from) - from, global_batch_);
}

std::uint64_t Sampler::position_after(std::uint64_t steps_done, std::uint64_t from, std::uint64_t epoch) const {
  if (tokens_) {
    const auto steps = token_steps(from, epoch);
    return std::min(steps->start(std::min(steps_done, steps->steps())), options_.dataset_size);
  }
  if (steps_done < steps(from)) return from + steps_done * global_batch_;
  return std::min(end(from), options_.dataset_size);
}

bool Sampler::covers_exactly_once() const {
  if (options_.repetitions != 1) return false;
  if (!tokens_) return end(0) == options_.dataset_size;
  // With `pad` the last step of an epoch may have fewer samples than ranks, which depends on the order.
  return options_.remainder != Remainder::drop && (options_.remainder != Remainder::pad || world_size_ == 1);
}

void Sampler::require_position(std::uint64_t from) const {
  if (from > options_.dataset_size) {
    throw UsageError(text("Position ", from, " is beyond the end of a data set of ", options_.dataset_size,
                          " samples. Resume with the data set of the previous run."));
  }
}

// The end of an order that starts at `from`: beyond the data set with padding, before its end if samples are dropped.
std::uint64_t Sampler::end(std::uint64_t from) const {
  require_position(from);
  const std::uint64_t left = options_.dataset_size - from;
  if (options_.remainder == Remainder::pad) return from + ceiling_of_ratio(left, world_size_) * world_size_;
  if (options_.remainder == Remainder::drop) return from + left / global_batch_ * global_batch_;
  return options_.dataset_size;
}

}  // namespace libtrain::data
