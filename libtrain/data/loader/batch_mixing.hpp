#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <libtrain/data/image/image.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

/// mixup and CutMix over the samples of a rank's batch. With both, each batch uses one of them, with equal probability,
/// as in torchvision's reference training. Labels become probabilities of classes.
struct BatchMixing {
  std::int64_t classes = 0;  ///< required
  double mixup_alpha = 0;    ///< 0: no mixup
  double cutmix_alpha = 0;   ///< 0: no CutMix
};

namespace detail {

/// Throws UsageError for options that are out of range or mix nothing.
void check_mixing(const BatchMixing& mixing);

/// How one batch is mixed: each sample with the previous one, the first with the last.
struct DrawnMixing {
  std::optional<Crop> box = {};  ///< of CutMix; without it mixup
  double lambda = 1;             ///< the weight of a sample itself
};

/// For images of this size.
DrawnMixing draw_mixing(const BatchMixing& mixing, std::int64_t width, std::int64_t height, SampleRandom& random);

/// Changes the images [B, C, H, W], at least one, in place; they are dense, contiguous or channels_last. float32 on the
/// CPU by the loops of detail/mixup.hpp; otherwise by at most three operations on the current stream, whose mixup
/// differs from theirs by rounding. Throws UsageError for images of bytes.
void mix_images(const DrawnMixing& drawn, const at::Tensor& images);

/// Probabilities of the classes, float32 [B, classes], of int64 labels [B] on the CPU, in new memory with these
/// options. Throws UsageError for a label that is not in [0, classes).
at::Tensor mix_labels(const DrawnMixing& drawn, const at::Tensor& labels, std::int64_t classes,
                      const at::TensorOptions& options);

}  // namespace detail

}  // namespace libtrain::data
