#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace libtrain::detail {

/// Neighbouring elements of a bucket that this rank updates, and whose optimizer state it keeps. None if `count` is 0;
/// the other members are undefined then.
struct OwnedRun {
  std::int64_t begin = 0;     ///< in the bucket
  std::int64_t in_state = 0;  ///< the same element's place in this rank's state
  std::int64_t count = 0;
};

/// Which rank updates which elements of a bucket: from the front, every rank has a part of equal size, in rank order.
/// The rest at the end, fewer elements than there are ranks, is updated by all ranks equally, so that memory needs no
/// padding and the updated rest is not sent.
///
///     | part of rank 0 | part of rank 1 | ... | rest |        a rank's state: | its part | rest |
class ShardLayout {
 public:
  ShardLayout(std::int64_t elements, int rank, int world_size);

  std::int64_t elements() const { return elements_; }

  /// Elements of one part.
  std::int64_t part() const { return part_; }

  /// Where this rank's part begins.
  std::int64_t part_begin() const { return part_begin_; }

  /// Elements of all parts, which is also where the rest begins.
  std::int64_t scattered() const { return scattered_; }

  std::int64_t rest() const { return elements_ - scattered_; }

  /// Elements of this rank's state.
  std::int64_t owned() const { return part_ + rest(); }

  /// This rank's elements among the `count` elements from `begin` on: those of its part, and those of the rest.
  std::array<OwnedRun, 2> owned_in(std::int64_t begin, std::int64_t count) const;

  /// One of these elements that only another rank updates; std::nullopt if there is none.
  std::optional<std::int64_t> foreign_in(std::int64_t begin, std::int64_t count) const;

 private:
  std::int64_t elements_;
  std::int64_t part_;
  std::int64_t part_begin_;
  std::int64_t scattered_;
};

}  // namespace libtrain::detail
