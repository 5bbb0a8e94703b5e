#pragma once

#include <libtrain/data/detection.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

/// Pastes about half of the objects of `from` that are not crowds, chosen at random, onto `onto`, with the pixels of
/// their masks and at the place that they have from the top left corner: G. Ghiasi et al., Simple Copy-Paste is a
/// Strong Data Augmentation Method for Instance Segmentation, CVPR 2021, without its optional blending.
///
/// What has no pixel inside of the image, and objects of `onto` that are covered completely, are left out; masks and
/// boxes of those that are cut or covered in part shrink, and their area in proportion. Pasted objects come last. Both
/// need masks, of the size of their image. The tensors of `onto` are changed or replaced, those of `from` are not.
void paste_objects(const DetectionSample& from, SampleRandom& random, DetectionSample& onto);

}  // namespace libtrain::data
