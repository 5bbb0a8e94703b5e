#pragma once

#include <algorithm>
#include <array>

#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/random_draws.hpp>
#include <libtrain/data/image/resize.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

/// The longest side of a finished image, in pixels.
inline constexpr int kLongestSide = 65535;

/// A point in an image, in pixels from its top left corner: x, y. The centre of the first pixel is (0.5, 0.5).
using ImagePoint = std::array<double, 2>;

/// A rectangle of an image in such coordinates: x1, y1, x2, y2.
using ImageBox = std::array<double, 4>;

/// Maps the image of a file to the finished image: a rectangle of the file's image is resized to the finished size, and
/// mirrored according to `flip`.
struct Geometry {
  ImageBox source = {0, 0, 1, 1};  ///< in the file's image; extends beyond it if the image is padded
  int width = 1;                   ///< of the finished image
  int height = 1;
  Flip flip = Flip::none;

  /// Maps a point of the file's image to the finished image; the result is outside of it if the point was cropped.
  ImagePoint map_point(const ImagePoint& place) const {
    const double x = (place[0] - source[0]) * (width / (source[2] - source[0]));
    const double y = (place[1] - source[1]) * (height / (source[3] - source[1]));
    return {flip == Flip::horizontal ? width - x : x, y};
  }

  /// Maps a rectangle, and keeps x1 <= x2. The result is not clipped to the finished image: see clipped().
  ImageBox map_box(const ImageBox& box) const {
    const ImagePoint first = map_point({box[0], box[1]});
    const ImagePoint last = map_point({box[2], box[3]});
    return {std::min(first[0], last[0]), first[1], std::max(first[0], last[0]), last[1]};
  }

  /// The part of a rectangle that is inside the finished image; without area if no part is.
  ImageBox clipped(const ImageBox& box) const {
    const auto x = [this](double value) { return std::clamp(value, 0.0, static_cast<double>(width)); };
    const auto y = [this](double value) { return std::clamp(value, 0.0, static_cast<double>(height)); };
    return {x(box[0]), y(box[1]), x(box[2]), y(box[3])};
  }
};

/// torchvision's defaults.
struct RandomResizedCropOptions {
  Interval scale = {0.08, 1.0};             ///< area of the crop as a fraction of the image's
  Interval ratio = {3.0 / 4.0, 4.0 / 3.0};  ///< width divided by height of the crop
};

/// The rectangle that torchvision's RandomResizedCrop.get_params draws: an area uniform over `scale`, a ratio whose
/// logarithm is uniform over that of `ratio`, sides rounded half to even; up to ten such draws until one fits, then a
/// uniform position. If none fits, the largest centred rectangle with an allowed ratio. Throws UsageError for an empty
/// image, a scale outside (0, 1], or a ratio that is not positive.
Crop random_resized_crop(int width, int height, const RandomResizedCropOptions& options, SampleRandom& random);

/// torchvision's RandomCrop(size, padding, fill), with which CIFAR is trained.
struct RandomCropOptions {
  int padding = 0;             ///< pixels added on every side
  FillColor fill = {0, 0, 0};  ///< colour of these pixels
};

/// A rectangle of the crop size at a uniformly distributed position in the padded image. (0, 0) is the first pixel of
/// the image itself, so that the rectangle may start at negative coordinates. Throws UsageError for sizes below 1, for
/// a padding outside 0 to 65535, and if the rectangle is larger than the padded image.
Crop random_crop(int width, int height, const RandomCropOptions& options, int crop_width, int crop_height,
                 SampleRandom& random);

/// The size of a resized image, and a rectangle of it.
struct ResizedCrop {
  int width = 0;  ///< of the whole resized image
  int height = 0;
  Crop crop = {};  ///< in the resized image

  bool operator==(const ResizedCrop&) const = default;
};

/// The effect of torchvision's Resize(short_side) and CenterCrop((crop_height, crop_width)): the shorter side becomes
/// `short_side`, the longer short_side * longer / shorter, rounded down; offsets are rounded half to even. Throws
/// UsageError for sizes below 1, if the longer side exceeds 2^31 - 1, and if the crop is larger than the resized image,
/// which torchvision would pad with zeros.
ResizedCrop resized_center_crop(int width, int height, int short_side, int crop_width, int crop_height);

/// The image sizes of torchvision's detection models (GeneralizedRCNNTransform).
struct ShorterSide {
  int min_size = 800;   ///< of the shorter side, less if the longer side would exceed max_size
  int max_size = 1333;  ///< limit of the longer side
};

/// The whole image at scale s = min(min_size / shorter, max_size / longer): both sides are floor(s * side) in double
/// precision, and at least 1. Throws UsageError for options outside 1 to 65535, and for an image size below 1.
ResizedCrop resized_whole(int width, int height, const ShorterSide& options);

/// Large-scale jittering: torchvision's ScaleJitter and FixedSizeCrop, without the padding to one size, and with a crop
/// at independent places in both directions, where torchvision draws one number for both.
struct ScaleJitter {
  int width = 1024;  ///< limits of the result
  int height = 1024;
  Interval scale = {0.1, 2.0};  ///< 1 is the size at which the whole image just fits
};

/// The whole image at a random scale, uniform over `scale`, both sides rounded down and at least 1; of what exceeds the
/// limits a rectangle at a uniformly distributed position. Throws UsageError for limits outside 1 to 65535, for scales
/// outside 0.001 to 100, and for an image size below 1.
ResizedCrop random_scaled_crop(int width, int height, const ScaleJitter& options, SampleRandom& random);

namespace detail {

/// Which part of an image file to decode, and how to resize it. The pixels are the same as after decoding the whole
/// file; as little as possible is decoded beyond what the result depends on.
///
/// A file that is decoded at 1/2, 1/4 or 1/8 covers the same area with fewer pixels; the last pixel may extend beyond
/// it. Coordinates in the scaled image are those of the file divided by the denominator, exactly. If such a rectangle
/// starts or ends within a pixel, the whole pixel is decoded, and the resize starts or ends within it.
struct DecodePlan {
  int scale_denominator = 1;  ///< see DecodeOptions
  Crop crop = {};             ///< to decode, in pixels of the scaled image
  ResizeOptions resize = {};  ///< of what was decoded; neither mirrored nor normalised
};

/// The largest denominator of 1, 2, 4 and 8 at which `width` x `height` pixels of a file are at least as many, in both
/// directions, as wanted.
int choose_scale(int width, int height, int wanted_width, int wanted_height);

/// For a rectangle of the file that becomes the whole target. The pixels around it are not used, as in torchvision's
/// RandomResizedCrop, except for those that share a pixel of the scaled image with it.
DecodePlan plan_crop(const Crop& crop, int scale_denominator);

/// For a part of the resized file of `width` x `height` pixels: exactly as resizing all of it and then cropping.
DecodePlan plan_resized_crop(int width, int height, const ResizedCrop& resized, int scale_denominator);

}  // namespace detail

}  // namespace libtrain::data
