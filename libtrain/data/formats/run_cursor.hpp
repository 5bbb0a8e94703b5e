#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <libtrain/data/formats/run_length.hpp>

namespace libtrain::data::detail {

/// Walks along runs of zeros and ones in steps of any length up to the end of the present run.
class RunCursor {
 public:
  explicit RunCursor(std::span<const std::uint32_t> counts) : counts_(counts), left_(counts.empty() ? 0 : counts[0]) {}

  /// Pixels left of the present run, and their value.
  std::uint32_t left() const { return left_; }
  bool value() const { return value_; }

  /// Goes on by `pixels`, at most left(). A run that ends makes place for the next one, be that of length 0.
  void advance(std::uint32_t pixels) {
    left_ -= pixels;
    if (left_ == 0 && next_ < counts_.size()) {
      left_ = counts_[next_++];
      value_ = !value_;
    }
  }

 private:
  std::span<const std::uint32_t> counts_;
  std::size_t next_ = 1;
  std::uint32_t left_;
  bool value_ = false;
};

/// Calls visit(pixels, a's value, b's value, whether it is the last time) for stretches in which neither mask changes,
/// and ends as pycocotools does: where both present runs have nothing left.
template <typename Visit>
void walk_together(std::span<const std::uint32_t> a_counts, std::span<const std::uint32_t> b_counts,
                   const Visit& visit) {
  RunCursor a{a_counts};
  RunCursor b{b_counts};
  bool more = true;
  while (more) {
    const std::uint32_t pixels = std::min(a.left(), b.left());
    const bool a_value = a.value();
    const bool b_value = b.value();
    a.advance(pixels);
    b.advance(pixels);
    more = a.left() > 0 || b.left() > 0;
    visit(pixels, a_value, b_value, !more);
  }
}

struct Overlap {
  std::uint64_t intersection = 0;
  std::uint64_t united = 0;
};

inline Overlap overlap_runs(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b) {
  Overlap overlap;
  walk_together(a, b, [&](std::uint32_t pixels, bool a_value, bool b_value, bool) {
    if (a_value && b_value) overlap.intersection += pixels;
    if (a_value || b_value) overlap.united += pixels;
  });
  return overlap;
}

inline std::vector<std::uint32_t> merge_runs(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b,
                                             Merge how) {
  std::vector<std::uint32_t> merged;
  std::uint32_t run = 0;
  bool value = false;
  walk_together(a, b, [&](std::uint32_t pixels, bool a_value, bool b_value, bool last) {
    const bool combined = how == Merge::intersected ? a_value && b_value : a_value || b_value;
    if (combined != value) {
      merged.push_back(run);
      run = 0;
      value = combined;
    }
    run += pixels;
    if (last) merged.push_back(run);
  });
  return merged;
}

}  // namespace libtrain::data::detail
