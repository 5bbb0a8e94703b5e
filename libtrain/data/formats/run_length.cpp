#include <libtrain/data/formats/run_length.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

/// Walks along runs of zeros and ones in steps of any length up to the end of the current run.
class RunCursor {
 public:
  explicit RunCursor(std::span<const std::uint32_t> counts) : counts_(counts), left_(counts.empty() ? 0 : counts[0]) {}

  /// The remaining pixels of the current run, and their value.
  std::uint32_t left() const { return left_; }
  bool value() const { return value_; }

  /// Advances by `pixels`, at most left(). At the end of a run, the next one, even of length 0, becomes current.
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

/// Calls visit(pixels, a's value, b's value, whether it is the last call) for stretches in which neither mask changes,
/// and ends like pycocotools: when both current runs have no pixels left.
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

}  // namespace

}  // namespace libtrain::data::detail

namespace libtrain::data {

namespace {

void require_size(std::size_t bytes, std::uint32_t height, std::uint32_t width) {
  if (bytes != detail::mask_pixels(height, width)) {
    throw UsageError(text("A mask of ", height, " x ", width, " needs as many bytes, but it has ", bytes, "."));
  }
}

constexpr char kFirst = '0';
constexpr int kGroupBits = 5;
constexpr std::uint64_t kGroupMask = 0x1f;
constexpr std::uint64_t kSign = 0x10;
constexpr std::uint64_t kMore = 0x20;
// Differences of 32-bit counts have 33 bits.
constexpr int kMaxGroups = 7;
// Earlier counts are written unchanged.
constexpr std::size_t kFirstDifference = 3;

// The signed number whose groups begin at `position`, which is moved after them; std::nullopt if they are truncated or
// contain an invalid character.
std::optional<std::int64_t> read_groups(std::string_view encoded, std::size_t& position) {
  std::uint64_t bits = 0;
  for (int number = 0; number < kMaxGroups && position < encoded.size(); ++number) {
    const int character = static_cast<unsigned char>(encoded[position]) - kFirst;
    if (character < 0 || character > 63) return std::nullopt;
    const auto group = static_cast<std::uint64_t>(character);
    const int shift = kGroupBits * number;
    bits |= (group & kGroupMask) << shift;
    ++position;
    if ((group & kMore) != 0) continue;
    if ((group & kSign) != 0) bits |= ~std::uint64_t{0} << (shift + kGroupBits);
    return static_cast<std::int64_t>(bits);
  }
  return std::nullopt;
}

}  // namespace

std::uint64_t detail::mask_pixels(std::uint32_t height, std::uint32_t width) {
  const std::uint64_t pixels = std::uint64_t{height} * width;
  if (pixels > kMaxMaskPixels) {
    throw UsageError(text("A mask of ", height, " x ", width, " has more than ", kMaxMaskPixels, " pixels."));
  }
  return pixels;
}

RunLength encode_mask(std::span<const std::uint8_t> mask, std::uint32_t height, std::uint32_t width) {
  require_size(mask.size(), height, width);
  RunLength result{.height = height, .width = width};
  std::uint8_t value = 0;
  std::uint32_t run = 0;
  for (const auto pixel : mask) {
    if (pixel != value) {
      result.counts.push_back(run);
      run = 0;
      value = pixel;
    }
    ++run;
  }
  result.counts.push_back(run);
  return result;
}

void decode_mask(RunLengthView runs, std::span<std::uint8_t> mask) {
  require_size(mask.size(), runs.height, runs.width);
  std::size_t position = 0;
  std::uint8_t value = 0;
  for (const auto run : runs.counts) {
    if (run > mask.size() - position) {
      throw EnvironmentError(text("The runs of a mask of ", runs.height, " x ", runs.width, " cover more than its ",
                                  mask.size(), " pixels."));
    }
    std::fill_n(mask.begin() + static_cast<std::ptrdiff_t>(position), run, value);
    position += run;
    value = value == 0 ? 1 : 0;
  }
  if (position != mask.size()) {
    throw EnvironmentError(text("The runs of a mask of ", runs.height, " x ", runs.width, " cover ", position,
                                " pixels; expected ", mask.size(), "."));
  }
}

std::uint64_t mask_area(RunLengthView runs) {
  std::uint64_t area = 0;
  for (std::size_t run = 1; run < runs.counts.size(); run += 2) area += runs.counts[run];
  return area;
}

BoundingBox mask_box(RunLengthView runs) {
  const std::uint64_t height = runs.height;
  if (height == 0) return {};
  std::uint64_t left = UINT64_MAX;
  std::uint64_t top = UINT64_MAX;
  std::uint64_t right = 0;
  std::uint64_t bottom = 0;
  std::uint64_t end = 0;
  for (std::size_t run = 0; run < runs.counts.size(); ++run) {
    const std::uint64_t begin = end;
    end += runs.counts[run];
    if (run % 2 == 0 || begin == end) continue;
    const std::uint64_t last = end - 1;
    left = std::min(left, begin / height);
    right = std::max(right, last / height);
    const bool within_a_column = begin / height == last / height;
    top = std::min(top, within_a_column ? begin % height : 0);
    bottom = std::max(bottom, within_a_column ? last % height : height - 1);
  }
  if (left == UINT64_MAX) return {};
  return {.x = static_cast<double>(left),
          .y = static_cast<double>(top),
          .width = static_cast<double>(right - left + 1),
          .height = static_cast<double>(bottom - top + 1)};
}

RunLength merge_masks(std::span<const RunLengthView> masks, Merge how) {
  if (masks.empty()) return {};
  const RunLengthView first = masks.front();
  RunLength result{.height = first.height, .width = first.width, .counts = {first.counts.begin(), first.counts.end()}};
  for (const RunLengthView& mask : masks.subspan(1)) {
    if (mask.height != first.height || mask.width != first.width) {
      throw UsageError(text("Masks of ", first.height, " x ", first.width, " and of ", mask.height, " x ", mask.width,
                            " cannot be merged: they must have one size."));
    }
    result.counts = detail::merge_runs(result.counts, mask.counts, how);
  }
  return result;
}

double mask_iou(RunLengthView detection, RunLengthView truth, GroundTruth kind) {
  // Sizes and runs are compared only if the boxes around the runs overlap.
  if (!(box_iou(mask_box(detection), mask_box(truth), kind) > 0)) return 0;
  if (detection.height != truth.height || detection.width != truth.width) return -1;
  const auto overlap = detail::overlap_runs(detection.counts, truth.counts);
  if (overlap.intersection == 0) return 0;
  const std::uint64_t divisor = kind == GroundTruth::crowd ? mask_area(detection) : overlap.united;
  return static_cast<double>(overlap.intersection) / static_cast<double>(divisor);
}

namespace detail {

std::optional<std::string> append_coco_counts(std::string_view encoded, std::uint64_t pixels,
                                              std::vector<std::uint32_t>& counts) {
  const std::size_t first = counts.size();
  std::uint64_t covered = 0;
  for (std::size_t position = 0; position < encoded.size();) {
    const std::size_t begin = position;
    const auto number = read_groups(encoded, position);
    if (!number) return text("the count at character ", begin, " is truncated or contains an invalid character");
    const std::size_t index = counts.size() - first;
    const std::int64_t count =
        index < kFirstDifference ? *number : *number + static_cast<std::int64_t>(counts[counts.size() - 2]);
    if (count < 0 || static_cast<std::uint64_t>(count) > pixels - covered) {
      return text("the count at character ", begin, " is ", count, ", of ", pixels - covered, " pixels left");
    }
    covered += static_cast<std::uint64_t>(count);
    counts.push_back(static_cast<std::uint32_t>(count));
  }
  if (covered != pixels) return text("the counts add up to ", covered, " of ", pixels, " pixels");
  return std::nullopt;
}

}  // namespace detail

std::string to_coco_string(RunLengthView runs) {
  std::string encoded;
  for (std::size_t index = 0; index < runs.counts.size(); ++index) {
    std::int64_t number = runs.counts[index];
    if (index >= kFirstDifference) number -= runs.counts[index - 2];
    bool more = true;
    while (more) {
      auto group = static_cast<std::uint64_t>(number) & kGroupMask;
      number >>= kGroupBits;
      more = number != ((group & kSign) != 0 ? -1 : 0);
      if (more) group |= kMore;
      encoded += static_cast<char>(kFirst + static_cast<char>(group));
    }
  }
  return encoded;
}

RunLength from_coco_string(std::string_view encoded, std::uint32_t height, std::uint32_t width) {
  const std::uint64_t pixels = detail::mask_pixels(height, width);
  RunLength result{.height = height, .width = width};
  if (const auto fault = detail::append_coco_counts(encoded, pixels, result.counts)) {
    throw EnvironmentError(text("A run-length encoded mask of ", height, " x ", width, " is damaged: ", *fault, "."));
  }
  return result;
}

}  // namespace libtrain::data
