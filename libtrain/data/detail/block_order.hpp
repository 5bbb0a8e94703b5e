#pragma once

#include <cstdint>
#include <vector>

#include <libtrain/data/detail/permutation.hpp>

namespace libtrain::data::detail {

/// A pseudo-random order of samples that lie in blocks, such as the files of a sharded data set, in which few blocks
/// are read at a time.
///
/// The blocks are permuted and, in that order, cut into windows of `blocks_at_once`; the samples of each window are
/// permuted among themselves. Every one of these permutations is a Permutation with a key of its own. Whoever reads
/// positions in order is done with a window's blocks before the next window begins.
///
/// Takes memory in proportion to the number of blocks. The same on every platform. Immutable: any thread may call it.
class BlockOrder {
 public:
  /// `sizes`: how many samples each block holds, in the order of the data set; a block may be empty. Throws UsageError
  /// for 0 `blocks_at_once`, and for more samples than 64 bits count.
  BlockOrder(const std::vector<std::uint64_t>& sizes, std::uint64_t blocks_at_once, std::uint64_t seed,
             std::uint64_t epoch);

  /// The sample at position `i`, numbered through all blocks. Throws UsageError unless `i` is below size().
  std::uint64_t operator()(std::uint64_t i) const;

  /// The samples of all blocks together.
  std::uint64_t size() const { return starts_.back(); }

 private:
  std::uint64_t place_of(std::uint64_t position) const;

  // A place is a block's rank in the permuted order of blocks.
  std::uint64_t blocks_at_once_;
  std::vector<std::uint64_t> starts_;  // for each place, how many samples lie before it; at last, how many in all
  std::vector<std::uint64_t> firsts_;  // for each place, the first sample of the block there
  std::vector<Permutation> windows_;
};

}  // namespace libtrain::data::detail
