#include <libtrain/data/image/cutmix.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/random_draws.hpp>

namespace libtrain::data {

namespace {

void check(std::span<const float> pictures, const BatchShape& shape, const Crop& box) {
  const std::size_t elements = shape.batch * shape.channels * shape.height * shape.width;
  if (elements == 0 || pictures.size() != elements) {
    throw UsageError(text("A batch of ", shape.batch, " pictures with ", shape.channels, " channels of ", shape.width,
                          " x ", shape.height, " pixels has ", pictures.size(),
                          " elements; it must have one for each, and not be empty."));
  }
  if (!lies_inside(box, static_cast<std::int64_t>(shape.width), static_cast<std::int64_t>(shape.height))) {
    throw UsageError(text("CutMix was to exchange ", box.width, " x ", box.height, " pixels at (", box.x, ", ", box.y,
                          "); they must lie inside the pictures of ", shape.width, " x ", shape.height, "."));
  }
}

// Elements [begin, begin + count) of every picture go to the next picture, those of the last to the first.
void rotate_run(std::span<float> pictures, std::size_t batch, std::size_t begin, std::size_t count,
                std::vector<float>& last) {
  const std::size_t size = pictures.size() / batch;
  const auto run = [&](std::size_t picture) { return pictures.data() + picture * size + begin; };
  std::copy_n(run(batch - 1), count, last.begin());
  for (std::size_t picture = batch; picture-- > 1;) std::copy_n(run(picture - 1), count, run(picture));
  std::copy_n(last.begin(), count, run(0));
}

}  // namespace

CutMix draw_cutmix(int width, int height, double alpha, SampleRandom& random) {
  if (width < 1 || height < 1) {
    throw UsageError(
        text("CutMix cannot exchange pixels of pictures of ", width, " x ", height, "; take larger ones."));
  }
  const double share = symmetric_beta(alpha, random);
  const int center_x = random.integer(0, width - 1);
  const int center_y = random.integer(0, height - 1);
  const double half = 0.5 * std::sqrt(1 - share);
  const auto half_width = static_cast<int>(half * width);
  const auto half_height = static_cast<int>(half * height);
  const int left = std::max(center_x - half_width, 0);
  const int top = std::max(center_y - half_height, 0);
  const Crop box{left, top, std::min(center_x + half_width, width) - left,
                 std::min(center_y + half_height, height) - top};
  const double pixels = static_cast<double>(width) * height;
  return {box, 1 - static_cast<double>(box.width) * box.height / pixels};
}

void cutmix(std::span<float> pictures, const BatchShape& shape, const Crop& box) {
  check(pictures, shape, box);
  const auto x = static_cast<std::size_t>(box.x);
  const auto y = static_cast<std::size_t>(box.y);
  const auto width = static_cast<std::size_t>(box.width);
  const auto height = static_cast<std::size_t>(box.height);
  // Rows of all channels at once, or of one.
  const bool interleaved = shape.layout == Layout::nhwc;
  const std::size_t planes = interleaved ? 1 : shape.channels;
  const std::size_t pixel = interleaved ? shape.channels : 1;
  std::vector<float> last(width * pixel);
  for (std::size_t plane = 0; plane < planes; ++plane) {
    for (std::size_t row = y; row < y + height; ++row) {
      rotate_run(pictures, shape.batch, ((plane * shape.height + row) * shape.width + x) * pixel, width * pixel, last);
    }
  }
}

}  // namespace libtrain::data
