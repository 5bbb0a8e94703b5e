#include <libtrain/data/loader/batch_mixing.hpp>

#include <cmath>
#include <span>

#include <ATen/ops/empty.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/detail/mixup.hpp>

namespace libtrain::data::detail {

void check_mixing(const BatchMixing& mixing) {
  const auto is_alpha = [](double alpha) { return std::isfinite(alpha) && alpha >= 0; };
  if (!is_alpha(mixing.mixup_alpha) || !is_alpha(mixing.cutmix_alpha) ||
      (mixing.mixup_alpha == 0 && mixing.cutmix_alpha == 0)) {
    throw UsageError(text("mixing has a mixup_alpha of ", mixing.mixup_alpha, " and a cutmix_alpha of ",
                          mixing.cutmix_alpha, ". Both must be 0 or more, and at least one positive."));
  }
  if (mixing.classes < 1) {
    throw UsageError(text("mixing has ", mixing.classes, " classes. Give the number of classes of the data set."));
  }
}

void mix_batch(const BatchMixing& mixing, SampleRandom& random, Batch& batch) {
  if (batch.images.scalar_type() != at::kFloat) {
    throw UsageError(text("mixup and CutMix need float32 images, but these are ", batch.images.toString(),
                          ". Read them as float32, or mix them in the training loop."));
  }
  const auto samples = static_cast<std::size_t>(batch.size());
  const auto classes = static_cast<std::size_t>(mixing.classes);
  const auto targets = at::empty({batch.size(), mixing.classes}, at::kFloat);
  if (samples > 0) {
    const std::span<float> images{batch.images.mutable_data_ptr<float>(),
                                  static_cast<std::size_t>(batch.images.numel())};
    const bool both = mixing.mixup_alpha > 0 && mixing.cutmix_alpha > 0;
    const bool cuts = both ? random.integer(0, 1) == 1 : mixing.cutmix_alpha > 0;
    double lambda = 1;
    if (cuts) {
      const bool nhwc = batch.images.strides()[1] == 1 && batch.images.size(1) > 1;
      const BatchShape shape{.batch = samples,
                             .channels = static_cast<std::size_t>(batch.images.size(1)),
                             .height = static_cast<std::size_t>(batch.images.size(2)),
                             .width = static_cast<std::size_t>(batch.images.size(3)),
                             .layout = nhwc ? Layout::nhwc : Layout::nchw};
      const auto drawn =
          draw_cutmix(static_cast<int>(shape.width), static_cast<int>(shape.height), mixing.cutmix_alpha, random);
      lambda = drawn.lambda;
      cutmix(images, shape, drawn.box);
    } else {
      lambda = draw_mixup(mixing.mixup_alpha, random);
      mixup(images, samples, lambda);
    }
    const std::span<const std::int64_t> labels{batch.labels.const_data_ptr<std::int64_t>(), samples};
    mix_labels(labels, classes, lambda, {targets.mutable_data_ptr<float>(), samples * classes});
  }
  batch.labels = targets;
}

}  // namespace libtrain::data::detail
