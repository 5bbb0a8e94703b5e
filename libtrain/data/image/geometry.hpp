#pragma once

#include <algorithm>
#include <array>

#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/random_draws.hpp>
#include <libtrain/data/image/resize.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

/// Pixels that a finished picture can have in either direction.
inline constexpr int kLongestSide = 65535;

/// A place in a picture, in pixels from its top left corner: x, y. The centre of the first pixel is (0.5, 0.5).
using PicturePoint = std::array<double, 2>;

/// A rectangle of a picture in such places: x1, y1, x2, y2.
using PictureBox = std::array<double, 4>;

/// Where in its file a finished picture comes from: a rectangle of the file's picture is stretched to the finished
/// size, and then perhaps mirrored.
struct Geometry {
  PictureBox source = {0, 0, 1, 1};  ///< in the file's picture, of which it sticks out where the picture was padded
  int width = 1;                     ///< of the finished picture
  int height = 1;
  Flip flip = Flip::none;

  /// The place in the finished picture of a place in the file's. Outside of the finished one where it was cut off.
  PicturePoint map_point(const PicturePoint& place) const {
    const double x = (place[0] - source[0]) * (width / (source[2] - source[0]));
    const double y = (place[1] - source[1]) * (height / (source[3] - source[1]));
    return {flip == Flip::horizontal ? width - x : x, y};
  }

  /// The same for a rectangle, with x1 <= x2 as before. Not cut off at the border: see clipped().
  PictureBox map_box(const PictureBox& box) const {
    const PicturePoint first = map_point({box[0], box[1]});
    const PicturePoint last = map_point({box[2], box[3]});
    return {std::min(first[0], last[0]), first[1], std::max(first[0], last[0]), last[1]};
  }

  /// What of a rectangle of the finished picture lies in it; without area where nothing does.
  PictureBox clipped(const PictureBox& box) const {
    const auto x = [this](double value) { return std::clamp(value, 0.0, static_cast<double>(width)); };
    const auto y = [this](double value) { return std::clamp(value, 0.0, static_cast<double>(height)); };
    return {x(box[0]), y(box[1]), x(box[2]), y(box[3])};
  }
};

/// torchvision's defaults.
struct RandomResizedCropOptions {
  Interval scale = {0.08, 1.0};             ///< of the crop's area, as a share of the picture's
  Interval ratio = {3.0 / 4.0, 4.0 / 3.0};  ///< of the crop's width to its height
};

/// The rectangle that torchvision's RandomResizedCrop.get_params draws: an area uniform over `scale`, a ratio whose
/// logarithm is uniform over that of `ratio`, sides rounded half to even; up to ten such draws until one fits, then a
/// uniform place; failing those, the largest rectangle in the middle whose ratio is allowed.
/// Throws UsageError for an empty picture, a scale outside (0, 1], or a ratio that is not positive.
Crop random_resized_crop(int width, int height, const RandomResizedCropOptions& options, SampleRandom& random);

/// torchvision's RandomCrop(size, padding, fill), with which CIFAR is trained.
struct RandomCropOptions {
  int padding = 0;             ///< pixels added on every side
  FillColor fill = {0, 0, 0};  ///< of the pixels added
};

/// A rectangle of that size, all of whose places in the padded picture are equally likely; (0, 0) is the first pixel of
/// the picture itself, so that the rectangle may begin left of it and above it. Throws UsageError for sizes below 1,
/// for a padding outside 0 to 65535, and where the rectangle is larger than the padded picture.
Crop random_crop(int width, int height, const RandomCropOptions& options, int crop_width, int crop_height,
                 SampleRandom& random);

/// A picture resized, and what is cut out of it.
struct ResizedCrop {
  int width = 0;  ///< of the whole resized picture
  int height = 0;
  Crop crop = {};  ///< in the resized picture

  bool operator==(const ResizedCrop&) const = default;
};

/// What torchvision's Resize(short_side) and CenterCrop((crop_height, crop_width)) do to a picture: the shorter side
/// becomes `short_side`, the longer short_side * longer / shorter, rounded down; offsets are rounded half to even.
/// Throws UsageError for sizes below 1, where the longer side is beyond 2^31 - 1, and where the crop is larger than the
/// resized picture, which torchvision would pad with zeros.
ResizedCrop resized_center_crop(int width, int height, int short_side, int crop_width, int crop_height);

/// The sizes that torchvision's detection models (GeneralizedRCNNTransform) give to pictures.
struct ShorterSide {
  int min_size = 800;   ///< of the shorter side, unless that makes the longer one too long
  int max_size = 1333;  ///< of the longer side at most
};

/// The whole picture at scale s = min(min_size / shorter, max_size / longer): both sides are floor(s * side) in double
/// precision, and at least 1. Throws UsageError for sizes outside 1 to 65535 in the options, or below 1 of the picture.
ResizedCrop resized_whole(int width, int height, const ShorterSide& options);

namespace detail {

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

}  // namespace detail

}  // namespace libtrain::data
