#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <libtrain/data/image/image.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data::detail {

// mixup (Zhang et al., mixup: Beyond Empirical Risk Minimization, arXiv:1710.09412) as torchvision's v2.MixUp: each
// sample is mixed with the previous sample of the batch, the first with the last, with the same weight for all.

/// The weight of each sample, from Beta(alpha, alpha). Throws UsageError unless alpha is positive and finite.
double draw_mixup(double alpha, SampleRandom& random);

/// samples[i] = lambda * samples[i] + (1 - lambda) * samples[i - 1], in place, for `batch` contiguous samples of equal
/// size. Throws UsageError if the batch is 0 or does not divide the number of elements, and for a lambda outside [0,
/// 1].
void mixup(std::span<float> samples, std::size_t batch, double lambda);

/// targets[i], of `classes` elements: lambda for the class labels[i] and 1 - lambda for labels[i - 1], or 1 if they are
/// the same; 0 for the others. For mixup and CutMix. Throws UsageError for a label outside [0, classes), unless there
/// are labels.size() * classes targets, and for a lambda outside [0, 1].
void mix_labels(std::span<const std::int64_t> labels, std::size_t classes, double lambda, std::span<float> targets);

// CutMix (Yun et al., CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features,
// arXiv:1905.04899) as torchvision's v2.CutMix: each image gets a rectangle, the same for all, from the previous image
// of the batch, the first from the last.

struct CutMix {
  Crop box = {};
  double lambda = 1;  ///< the fraction of its own pixels that an image keeps, for mix_labels()
};

/// The rectangle's centre is uniform over the pixels; its sides are sqrt(1 - l) of the image's for an l from
/// Beta(alpha, alpha), halved and rounded down on both sides of the centre, and clipped to the image. Throws UsageError
/// for an empty image, and unless alpha is positive and finite.
CutMix draw_cutmix(int width, int height, double alpha, SampleRandom& random);

/// The shape of a contiguous batch of images.
struct BatchShape {
  std::size_t batch = 0;
  std::size_t channels = 3;
  std::size_t height = 0;
  std::size_t width = 0;
  Layout layout = Layout::nchw;
};

/// Copies the rectangle from image i - 1 to image i, in place, as if all were copied at once. Throws UsageError if the
/// shape does not match the elements, or if the rectangle is not inside the images.
void cutmix(std::span<float> images, const BatchShape& shape, const Crop& box);

}  // namespace libtrain::data::detail
