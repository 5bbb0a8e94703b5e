#include <libtrain/data/detail/block_order.hpp>

#include <algorithm>
#include <limits>

#include <libtrain/base/error.hpp>
#include <libtrain/base/splitmix.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

// "blocks" in ASCII: keeps the keys apart from those that Permutation and SampleRandom make of the same seed and epoch.
constexpr std::uint64_t kBlocks = 0x626c6f636b73u;

std::vector<std::uint64_t> first_samples(const std::vector<std::uint64_t>& sizes) {
  std::vector<std::uint64_t> firsts;
  firsts.reserve(sizes.size());
  std::uint64_t samples = 0;
  for (const std::uint64_t size : sizes) {
    if (size > std::numeric_limits<std::uint64_t>::max() - samples) {
      throw UsageError(
          text("The ", sizes.size(), " blocks have more samples than 64 bits can count. Check their sizes."));
    }
    firsts.push_back(samples);
    samples += size;
  }
  return firsts;
}

}  // namespace

BlockOrder::BlockOrder(const std::vector<std::uint64_t>& sizes, std::uint64_t blocks_at_once, std::uint64_t seed,
                       std::uint64_t epoch)
    : blocks_at_once_(blocks_at_once) {
  if (blocks_at_once == 0) throw UsageError("blocks_at_once is 0. It must be at least 1.");
  const std::vector<std::uint64_t> firsts = first_samples(sizes);
  const std::uint64_t blocks = sizes.size();
  const std::uint64_t key = libtrain::detail::combine_keys(libtrain::detail::combine_keys(seed, epoch), kBlocks);

  const Permutation block_at(blocks, key, 0);
  firsts_.reserve(blocks);
  starts_.reserve(blocks + 1);
  starts_.push_back(0);
  for (std::uint64_t place = 0; place < blocks; ++place) {
    const std::uint64_t block = block_at(place);
    firsts_.push_back(firsts[block]);
    starts_.push_back(starts_.back() + sizes[block]);
  }

  const std::uint64_t windows = blocks / blocks_at_once + (blocks % blocks_at_once != 0 ? 1 : 0);
  windows_.reserve(windows);
  for (std::uint64_t window = 0; window < windows; ++window) {
    const std::uint64_t begin = window * blocks_at_once;
    const std::uint64_t end = begin + std::min(blocks_at_once, blocks - begin);
    windows_.emplace_back(starts_[end] - starts_[begin], key, window + 1);
  }
}

std::uint64_t BlockOrder::operator()(std::uint64_t i) const {
  if (i >= size()) throw UsageError(text("Position ", i, " is outside the blocks, which have ", size(), " samples."));
  const std::uint64_t window = place_of(i) / blocks_at_once_;
  const std::uint64_t window_start = starts_[window * blocks_at_once_];
  const std::uint64_t position = window_start + windows_[window](i - window_start);
  const std::uint64_t place = place_of(position);
  return firsts_[place] + (position - starts_[place]);
}

// The last place that starts at or before the position. Places of empty blocks that start there come before it.
std::uint64_t BlockOrder::place_of(std::uint64_t position) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), position);
  return static_cast<std::uint64_t>(after - starts_.begin()) - 1;
}

}  // namespace libtrain::data::detail
