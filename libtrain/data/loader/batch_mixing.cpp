#include <libtrain/data/loader/batch_mixing.hpp>

#include <cmath>
#include <span>

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/roll.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/detail/mixup.hpp>

namespace libtrain::data::detail {

namespace {

void mix_on_host(const DrawnMixing& drawn, const at::Tensor& images) {
  const std::span<float> elements{images.mutable_data_ptr<float>(), static_cast<std::size_t>(images.numel())};
  const auto samples = static_cast<std::size_t>(images.size(0));
  if (!drawn.box) return mixup(elements, samples, drawn.lambda);
  const bool nhwc = images.strides()[1] == 1 && images.size(1) > 1;
  const BatchShape shape{.batch = samples,
                         .channels = static_cast<std::size_t>(images.size(1)),
                         .height = static_cast<std::size_t>(images.size(2)),
                         .width = static_cast<std::size_t>(images.size(3)),
                         .layout = nhwc ? Layout::nhwc : Layout::nchw};
  cutmix(elements, shape, *drawn.box);
}

void mix_on_device(const DrawnMixing& drawn, const at::Tensor& images) {
  if (drawn.box) {
    const auto part = images.narrow(2, drawn.box->y, drawn.box->height).narrow(3, drawn.box->x, drawn.box->width);
    part.copy_(part.roll(1, 0));
    return;
  }
  // Samples as rows, whose elements may be in any order: roll() would make channels_last images contiguous.
  const std::int64_t elements = images.numel() / images.size(0);
  const auto rows = images.as_strided({images.size(0), elements}, {elements, 1});
  rows.lerp_(rows.roll(1, 0), 1 - drawn.lambda);
}

}  // namespace

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

DrawnMixing draw_mixing(const BatchMixing& mixing, std::int64_t width, std::int64_t height, SampleRandom& random) {
  const bool both = mixing.mixup_alpha > 0 && mixing.cutmix_alpha > 0;
  const bool cuts = both ? random.integer(0, 1) == 1 : mixing.cutmix_alpha > 0;
  if (!cuts) return {.lambda = draw_mixup(mixing.mixup_alpha, random)};
  const CutMix drawn = draw_cutmix(static_cast<int>(width), static_cast<int>(height), mixing.cutmix_alpha, random);
  return {.box = drawn.box, .lambda = drawn.lambda};
}

void mix_images(const DrawnMixing& drawn, const at::Tensor& images) {
  if (!images.is_floating_point()) {
    throw UsageError(text("mixup and CutMix need images of floating-point numbers, but these are ", images.toString(),
                          ". Read them as float32, or set DataLoaderOptions::normalize_on_device."));
  }
  if (images.is_cpu() && images.scalar_type() == at::kFloat) {
    mix_on_host(drawn, images);
  } else {
    mix_on_device(drawn, images);
  }
}

at::Tensor mix_labels(const DrawnMixing& drawn, const at::Tensor& labels, std::int64_t classes,
                      const at::TensorOptions& options) {
  const auto targets = at::empty({labels.size(0), classes}, options.dtype(at::kFloat));
  mix_labels({labels.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(labels.size(0))},
             static_cast<std::size_t>(classes), drawn.lambda,
             {targets.mutable_data_ptr<float>(), static_cast<std::size_t>(targets.numel())});
  return targets;
}

}  // namespace libtrain::data::detail
