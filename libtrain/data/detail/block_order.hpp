#pragma once

#include <cstdint>
#include <vector>

#include <libtrain/data/detail/permutation.hpp>

namespace libtrain::data::detail {

/// A pseudo-random order of samples in blocks, such as the files of a sharded data set, that reads few blocks at a
/// time.
///
/// The blocks are permuted and then divided into windows of `blocks_at_once` blocks; the samples of each window are
/// permuted among themselves. Each of these permutations is a Permutation with its own key. A reader of consecutive
/// positions finishes the blocks of a window before the next window begins.
///
/// Memory is proportional to the number of blocks. The same on every platform. Immutable: any thread may call it.
class BlockOrder {
 public:
  /// `sizes`: the number of samples in each block, in the order of the data set; a block may be empty. Throws
  /// UsageError for 0 `blocks_at_once`, and for more samples than a 64-bit number can count.
  BlockOrder(const std::vector<std::uint64_t>& sizes, std::uint64_t blocks_at_once, std::uint64_t seed,
             std::uint64_t epoch);

  /// The sample at position `i`, as its number in the data set. Throws UsageError unless `i` is below size().
  std::uint64_t operator()(std::uint64_t i) const;

  /// The number of samples in all blocks.
  std::uint64_t size() const { return starts_.back(); }

 private:
  std::uint64_t place_of(std::uint64_t position) const;

  // A place is the position of a block in the permuted order of blocks.
  std::uint64_t blocks_at_once_;
  std::vector<std::uint64_t> starts_;  // for each place, the number of samples before it; at the end, of all samples
  std::vector<std::uint64_t> firsts_;  // for each place, the first sample of the block there
  std::vector<Permutation> windows_;
};

}  // namespace libtrain::data::detail
