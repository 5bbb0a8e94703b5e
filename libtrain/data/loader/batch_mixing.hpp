#pragma once

#include <cstdint>

#include <libtrain/data/batch.hpp>
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

/// Changes the images in place and replaces the labels. Throws UsageError for images that are not float32 and for a
/// label that is not in [0, classes).
void mix_batch(const BatchMixing& mixing, SampleRandom& random, Batch& batch);

}  // namespace detail

}  // namespace libtrain::data
