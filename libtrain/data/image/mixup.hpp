#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

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

}  // namespace libtrain::data
