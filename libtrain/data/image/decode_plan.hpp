#pragma once

#include <libtrain/data/image/crop_policy.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/resize.hpp>

namespace libtrain::data::detail {

/// What to decode of an image file, and how to resize it: the pixels are those that decoding all of it gives, and
/// nothing is decoded that the result does not depend on, as far as the decoder can help it.
///
/// A file that is decoded at 1/2, 1/4 or 1/8 covers the same area with fewer pixels, the last of which may reach out of
/// it. Places in the scaled picture are those of the file divided by the denominator, exactly; where such a rectangle
/// begins or ends within a pixel, the whole pixel is decoded, and the resize told where in it to begin or to end.
struct DecodePlan {
  int scale_denominator = 1;  ///< as of DecodeOptions
  Crop crop = {};             ///< to decode, in pixels of the scaled picture
  ResizeOptions resize = {};  ///< of what was decoded; neither mirrored nor normalised
};

/// The greatest denominator of 1, 2, 4 and 8 at which `width` x `height` pixels of a file are still no fewer, in either
/// direction, than those wanted of them.
int choose_scale(int width, int height, int wanted_width, int wanted_height);

/// For a rectangle of the file that becomes the whole target. The pixels around it take no part, as in torchvision's
/// RandomResizedCrop, but for those that share a pixel of the scaled picture with it and with their neighbours.
DecodePlan plan_crop(const Crop& crop, int scale_denominator);

/// For a part of the resized file, of `width` x `height` pixels: as resizing all of it and then cropping, exactly.
DecodePlan plan_resized_crop(int width, int height, const ResizedCrop& resized, int scale_denominator);

}  // namespace libtrain::data::detail
