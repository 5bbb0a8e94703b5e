#include <libtrain/data/formats/detail/polygon_mask.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

constexpr int kScale = 5;
// On the fine grid, the middle of pixel p is at kScale * p + kMiddle.
constexpr int kMiddle = 2;

struct Point {
  int x = 0;
  int y = 0;
};

void require_usable(std::span<const double> polygon, std::uint32_t height, std::uint32_t width) {
  if (polygon.empty() || polygon.size() % 2 != 0) {
    throw UsageError(text("A polygon has ", polygon.size(), " coordinates; expected pairs of x and y."));
  }
  const std::uint64_t pixels = std::uint64_t{height} * width;
  if (pixels == 0 || pixels > kMaxMaskPixels) {
    throw UsageError(
        text("A mask cannot be of ", height, " x ", width, ": expected 1 to ", kMaxMaskPixels, " pixels."));
  }
  for (const double coordinate : polygon) {
    if (!(std::abs(coordinate) <= kMaxCoordinate)) {
      throw EnvironmentError(text("A polygon has the coordinate ", coordinate, "; expected -", kMaxCoordinate, " to ",
                                  kMaxCoordinate, "."));
    }
  }
}

int floor_divide(int number, int divisor) {
  return number >= 0 ? number / divisor : -((divisor - 1 - number) / divisor);
}

// Collects the positions, in the column-major mask, at which the outline crosses the middle of a column.
class Crossings {
 public:
  Crossings(std::uint32_t height, std::uint32_t width)
      : height_(static_cast<int>(height)), width_(static_cast<int>(width)) {}

  void visit(Point point) {
    if (any_ && point.x != previous_.x) cross(point);
    previous_ = point;
    any_ = true;
  }

  std::vector<std::uint32_t> take() && { return std::move(positions_); }

 private:
  // A step between two grid columns belongs to the left one, and to the upper of its two ends.
  void cross(Point point) {
    const int from_middle = (point.x < previous_.x ? point.x : point.x - 1) - kMiddle;
    if (from_middle < 0 || from_middle % kScale != 0) return;
    const int column = from_middle / kScale;
    if (column >= width_) return;
    const int above = std::min(point.y, previous_.y);
    const int row = std::clamp(floor_divide(above - kMiddle + kScale - 1, kScale), 0, height_);
    positions_.push_back(static_cast<std::uint32_t>(column * std::int64_t{height_} + row));
  }

  int height_;
  int width_;
  Point previous_;
  bool any_ = false;
  std::vector<std::uint32_t> positions_;
};

// Visits the grid points of an edge in order. They are computed from the end with the smaller coordinate on the longer
// side, in either direction of the edge, and rounded by adding a half and truncating: exactly the points of
// pycocotools.
void walk_edge(Point from, Point to, Crossings& crossings) {
  const int width = std::abs(to.x - from.x);
  const int height = std::abs(to.y - from.y);
  const bool flat = width >= height;
  const bool backwards = flat ? from.x > to.x : from.y > to.y;
  if (backwards) std::swap(from, to);
  const int steps = flat ? width : height;
  const double rise = flat ? to.y - from.y : to.x - from.x;
  const double slope = steps == 0 ? 0 : rise / steps;
  for (int step = 0; step <= steps; ++step) {
    const int along = backwards ? steps - step : step;
    const double across = (flat ? from.y : from.x) + slope * along + .5;
    crossings.visit(flat ? Point{.x = from.x + along, .y = static_cast<int>(across)}
                         : Point{.x = static_cast<int>(across), .y = from.y + along});
  }
}

std::vector<std::uint32_t> crossings_of(std::span<const double> polygon, std::uint32_t height, std::uint32_t width) {
  const auto corner = [&](std::size_t number) {
    return Point{.x = static_cast<int>(kScale * polygon[2 * number] + .5),
                 .y = static_cast<int>(kScale * polygon[2 * number + 1] + .5)};
  };
  const std::size_t corners = polygon.size() / 2;
  Crossings crossings{height, width};
  for (std::size_t number = 0; number < corners; ++number) {
    walk_edge(corner(number), corner((number + 1) % corners), crossings);
  }
  return std::move(crossings).take();
}

}  // namespace

RunLength polygon_mask(std::span<const double> polygon, std::uint32_t height, std::uint32_t width) {
  require_usable(polygon, height, width);
  auto positions = crossings_of(polygon, height, width);
  std::sort(positions.begin(), positions.end());
  positions.push_back(height * width);

  RunLength result{.height = height, .width = width};
  std::uint32_t previous = 0;
  bool joined = false;
  for (const auto position : positions) {
    const std::uint32_t run = position - previous;
    previous = position;
    // A run of length 0, except at the start, joins its neighbours.
    if (joined) {
      result.counts.back() += run;
      joined = false;
    } else if (run == 0 && !result.counts.empty()) {
      joined = true;
    } else {
      result.counts.push_back(run);
    }
  }
  return result;
}

}  // namespace libtrain::data::detail
