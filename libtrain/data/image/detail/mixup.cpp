#include <libtrain/data/image/detail/mixup.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/random_draws.hpp>

namespace libtrain::data::detail {

namespace {

void check_lambda(double lambda) {
  if (!(lambda >= 0 && lambda <= 1)) {
    throw UsageError(text("The weight lambda of mixing is ", lambda, "; it must be from 0 to 1."));
  }
}

void mix_into(float* sample, const float* previous, std::size_t count, float kept, float taken) {
  for (std::size_t i = 0; i < count; ++i) sample[i] = previous[i] * taken + sample[i] * kept;
}

void check(std::span<const float> images, const BatchShape& shape, const Crop& box) {
  const std::size_t elements = shape.batch * shape.channels * shape.height * shape.width;
  if (elements == 0 || images.size() != elements) {
    throw UsageError(text("A batch of ", shape.batch, " images with ", shape.channels, " channels of ", shape.width,
                          " x ", shape.height, " pixels has ", images.size(),
                          " elements; it must have one for each, and not be empty."));
  }
  if (!lies_inside(box, static_cast<std::int64_t>(shape.width), static_cast<std::int64_t>(shape.height))) {
    throw UsageError(text("The rectangle of CutMix is ", box.width, " x ", box.height, " pixels at (", box.x, ", ",
                          box.y, "); it must be inside the images of ", shape.width, " x ", shape.height, "."));
  }
}

// Copies elements [begin, begin + count) of every image to the next image, those of the last to the first.
void rotate_run(std::span<float> images, std::size_t batch, std::size_t begin, std::size_t count,
                std::vector<float>& last) {
  const std::size_t size = images.size() / batch;
  const auto run = [&](std::size_t image) { return images.data() + image * size + begin; };
  std::copy_n(run(batch - 1), count, last.begin());
  for (std::size_t image = batch; image-- > 1;) std::copy_n(run(image - 1), count, run(image));
  std::copy_n(last.begin(), count, run(0));
}

}  // namespace

double draw_mixup(double alpha, SampleRandom& random) {
  return symmetric_beta(alpha, random);
}

void mixup(std::span<float> samples, std::size_t batch, double lambda) {
  check_lambda(lambda);
  if (batch == 0 || samples.size() % batch != 0) {
    throw UsageError(text("A batch of ", batch, " samples has ", samples.size(),
                          " elements; there must be at least one sample, and all must have the same size."));
  }
  const std::size_t count = samples.size() / batch;
  const auto kept = static_cast<float>(lambda);
  const auto taken = static_cast<float>(1 - lambda);
  // From the last to the first, so that the previous sample is still unchanged; for the first one a copy of the last.
  const auto last_sample = samples.last(count);
  const std::vector<float> last(last_sample.begin(), last_sample.end());
  for (std::size_t i = batch; i-- > 1;) {
    mix_into(samples.data() + i * count, samples.data() + (i - 1) * count, count, kept, taken);
  }
  mix_into(samples.data(), last.data(), count, kept, taken);
}

void mix_labels(std::span<const std::int64_t> labels, std::size_t classes, double lambda, std::span<float> targets) {
  check_lambda(lambda);
  if (targets.size() != labels.size() * classes) {
    throw UsageError(text("Targets for ", labels.size(), " labels of ", classes, " classes have ", targets.size(),
                          " elements; they must have one for each label and class."));
  }
  for (const auto label : labels) {
    if (label < 0 || static_cast<std::uint64_t>(label) >= classes) {
      throw UsageError(text("A label to mix is ", label, "; labels must be from 0 to ", classes, " - 1."));
    }
  }
  std::fill(targets.begin(), targets.end(), 0.0f);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::size_t previous = i == 0 ? labels.size() - 1 : i - 1;
    float* row = targets.data() + i * classes;
    row[static_cast<std::size_t>(labels[i])] += static_cast<float>(lambda);
    row[static_cast<std::size_t>(labels[previous])] += static_cast<float>(1 - lambda);
  }
}

CutMix draw_cutmix(int width, int height, double alpha, SampleRandom& random) {
  if (width < 1 || height < 1) {
    throw UsageError(text("CutMix cannot exchange pixels of images of ", width, " x ", height,
                          "; they must have at least one pixel."));
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

void cutmix(std::span<float> images, const BatchShape& shape, const Crop& box) {
  check(images, shape, box);
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
      rotate_run(images, shape.batch, ((plane * shape.height + row) * shape.width + x) * pixel, width * pixel, last);
    }
  }
}

}  // namespace libtrain::data::detail
