#include <libtrain/data/sampler.hpp>

#include <algorithm>
#include <limits>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/permutation.hpp>

namespace libtrain::data {

namespace {

constexpr auto kMaximum = std::numeric_limits<std::uint64_t>::max();

std::uint64_t ceiling_of_ratio(std::uint64_t a, std::uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

void check(const SamplerOptions& options, Shard shard) {
  if (shard.world_size < 1 || shard.rank < 0 || shard.rank >= shard.world_size) {
    throw UsageError(text("rank ", shard.rank, " is outside a world of ", shard.world_size, " ranks"));
  }
  if (options.dataset_size == 0) throw UsageError("the data set is empty: there is nothing to sample from");
  if (options.batch_size == 0) throw UsageError("batch_size is 0: it must be at least 1");
  const auto world = static_cast<std::uint64_t>(shard.world_size);
  if (options.batch_size > kMaximum / world || options.dataset_size > kMaximum - world) {
    throw UsageError(text("a batch_size of ", options.batch_size, " on ", world, " ranks over ", options.dataset_size,
                          " samples exceeds 64-bit arithmetic"));
  }
  if (options.remainder == Remainder::drop && options.dataset_size < options.batch_size * world) {
    throw UsageError(text("an epoch would have no step: ", world, " ranks with a batch_size of ", options.batch_size,
                          " need ", options.batch_size * world, " samples for one full global batch, the data set has ",
                          options.dataset_size, "; use a smaller batch_size, or pad instead of drop"));
  }
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options, Shard shard) : options_(options), shard_(shard) {
  check(options, shard);
  const auto world = static_cast<std::uint64_t>(shard.world_size);
  global_batch_ = options.batch_size * world;
  positions_ = options.dataset_size;
  if (options.remainder == Remainder::pad) positions_ = ceiling_of_ratio(positions_, world) * world;
  if (options.remainder == Remainder::drop) positions_ = positions_ / global_batch_ * global_batch_;
  steps_ = ceiling_of_ratio(positions_, global_batch_);
}

std::vector<std::uint64_t> Sampler::batch(std::uint64_t epoch, std::uint64_t step) const {
  if (step >= steps_) throw UsageError(text("step ", step, " is past the end of an epoch of ", steps_, " steps"));
  const std::uint64_t start = step * global_batch_;
  const std::uint64_t size = std::min(global_batch_, positions_ - start);
  const auto world = static_cast<std::uint64_t>(shard_.world_size);
  const auto rank = static_cast<std::uint64_t>(shard_.rank);
  // The first `size % world` ranks get one sample more; written so that nothing overflows.
  const std::uint64_t begin = start + size / world * rank + std::min(rank, size % world);
  const std::uint64_t count = size / world + (rank < size % world ? 1 : 0);

  const Permutation order(options_.dataset_size, options_.seed, epoch);
  std::vector<std::uint64_t> samples(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t position = (begin + i) % options_.dataset_size;
    samples[i] = options_.order == Order::shuffled ? order(position) : position;
  }
  return samples;
}

std::uint64_t Sampler::padding() const {
  return positions_ > options_.dataset_size ? positions_ - options_.dataset_size : 0;
}

}  // namespace libtrain::data
