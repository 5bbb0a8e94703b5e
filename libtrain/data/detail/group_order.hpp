#pragma once

#include <cstdint>
#include <vector>

namespace libtrain::data::detail {

/// A pseudo-random order of samples in chunks of one group each, such as images of a similar aspect ratio.
///
/// A Permutation of all N samples comes first. Its last N % chunk samples stay where they are. Of the others each group
/// fills chunks with its samples, in the order of that permutation; what is left of the groups, less than a chunk each,
/// is joined in the order of the groups and fills further chunks. A second Permutation places the chunks. Therefore at
/// most K - 1 chunks have samples of several of the K groups, and such a chunk has those of a group side by side.
///
/// Memory: 4 bytes per sample, and during the construction 4 more per chunk. The same on every platform. Immutable: any
/// thread may call it.
class GroupOrder {
 public:
  /// `groups`: the group of each sample, fewer than 2^32 of them. `chunk`: a number of samples, at least 1.
  GroupOrder(const std::vector<std::uint8_t>& groups, std::uint64_t chunk, std::uint64_t seed, std::uint64_t epoch);

  /// The sample at position `i`. Throws UsageError unless `i` is below the number of samples.
  std::uint64_t operator()(std::uint64_t i) const;

 private:
  std::vector<std::uint32_t> samples_;
};

}  // namespace libtrain::data::detail
