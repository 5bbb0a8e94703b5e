#include <libtrain/data/formats/run_length.hpp>

#include <algorithm>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/run_cursor.hpp>

namespace libtrain::data {

namespace {

void require_size(std::size_t bytes, std::uint32_t height, std::uint32_t width) {
  if (bytes != detail::mask_pixels(height, width)) {
    throw UsageError(text("A mask of ", height, " x ", width, " needs as many bytes, but there are ", bytes, "."));
  }
}

}  // namespace

std::uint64_t detail::mask_pixels(std::uint32_t height, std::uint32_t width) {
  const std::uint64_t pixels = std::uint64_t{height} * width;
  if (pixels > kMostMaskPixels) {
    throw UsageError(text("A mask of ", height, " x ", width, " has more than ", kMostMaskPixels, " pixels."));
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
                            " cannot be merged: they must be of one size."));
    }
    result.counts = detail::merge_runs(result.counts, mask.counts, how);
  }
  return result;
}

double mask_iou(RunLengthView detection, RunLengthView truth, Truth kind) {
  // Runs are compared only where the boxes around them overlap; then sizes are, too.
  if (!(box_iou(mask_box(detection), mask_box(truth), kind) > 0)) return 0;
  if (detection.height != truth.height || detection.width != truth.width) return -1;
  const auto overlap = detail::overlap_runs(detection.counts, truth.counts);
  if (overlap.intersection == 0) return 0;
  const std::uint64_t divisor = kind == Truth::crowd ? mask_area(detection) : overlap.united;
  return static_cast<double>(overlap.intersection) / static_cast<double>(divisor);
}

}  // namespace libtrain::data
