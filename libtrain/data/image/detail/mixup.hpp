#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <libtrain/data/image/image.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data::detail {

// mixup (Zhang et al., mixup: Beyond Empirical Risk Minimization, arXiv:1710.09412) as torchvision's v2.MixUp does it:
// each sample is mixed with the one before it in the batch, the first with the last, in one proportion for all.

/// The share that each sample keeps: from Beta(alpha, alpha). Throws UsageError unless alpha is positive and finite.
double draw_mixup(double alpha, SampleRandom& random);

/// samples[i] = lambda * samples[i] + (1 - lambda) * samples[i - 1], in place, for `batch` samples of equal size that
/// lie end to end. Throws UsageError where the batch is 0 or does not divide the elements, and for a lambda outside
/// [0, 1].
void mixup(std::span<float> samples, std::size_t batch, double lambda);

/// targets[i], of `classes` elements: lambda for the class labels[i] and 1 - lambda for labels[i - 1], added up where
/// they are the same; 0 for the others. For mixup and CutMix. Throws UsageError for a label outside [0, classes), which
/// it names, for targets that are not labels.size() * classes many, and for a lambda outside [0, 1].
void mix_labels(std::span<const std::int64_t> labels, std::size_t classes, double lambda, std::span<float> targets);

// CutMix (Yun et al., CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features,
// arXiv:1905.04899) as torchvision's v2.CutMix does it: each picture takes one rectangle, the same for all, from the
// picture before it in the batch, the first from the last.

struct CutMix {
  Crop box = {};
  double lambda = 1;  ///< the share of its own pixels that a picture keeps: what mix_labels takes
};

/// The rectangle's centre is uniform over the pixels; its sides are sqrt(1 - l) of the picture's for an l from
/// Beta(alpha, alpha), halved and rounded down on both sides of the centre, and cut off at the border. Throws
/// UsageError for an empty picture, and unless alpha is positive and finite.
CutMix draw_cutmix(int width, int height, double alpha, SampleRandom& random);

/// The pictures of a batch, dense in memory.
struct BatchShape {
  std::size_t batch = 0;
  std::size_t channels = 3;
  std::size_t height = 0;
  std::size_t width = 0;
  Layout layout = Layout::nchw;
};

/// Copies the rectangle from picture i - 1 to picture i, in place; each takes what the other had before. Throws
/// UsageError where the shape does not fit the elements, or the rectangle the pictures.
void cutmix(std::span<float> pictures, const BatchShape& shape, const Crop& box);

}  // namespace libtrain::data::detail
