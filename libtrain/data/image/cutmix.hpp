#pragma once

#include <cstddef>
#include <span>

#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/pixel_format.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

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

}  // namespace libtrain::data
