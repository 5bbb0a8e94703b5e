#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <libtrain/data/image/augment.hpp>
#include <libtrain/data/image/decode_image.hpp>
#include <libtrain/data/image/decode_options.hpp>
#include <libtrain/data/image/geometry.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/image_header.hpp>
#include <libtrain/data/image/resize.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

/// How an image file becomes a finished image, by the steps of torchvision's reference training in its order: crop and
/// resize, mirror, change colours, TrivialAugment or RandAugment, your own step, normalise, erase.
struct ImagePipelineOptions {
  int width = 224;  ///< of the finished image, 1 to 65535
  int height = 224;
  int channels = 3;  ///< 3: red, green, blue; 1: grey

  /// The part of the file's image that is used. Set at most one of the four; without any, the shorter side is resized
  /// to `short_side` pixels, at least the larger of width and height, and the centre is cropped. With the last two each
  /// image has its own size, not width x height.
  std::optional<RandomResizedCropOptions> random_resized_crop = {};  ///< a random rectangle, resized
  std::optional<RandomCropOptions> random_crop = {};                 ///< a rectangle of the finished size, with padding
  std::optional<ShorterSide> shorter_side = {};                      ///< the whole image
  std::optional<ScaleJitter> scale_jitter = {};                      ///< the whole image at a random scale, or a part
  int short_side = 256;

  double flip_probability = 0;  ///< of mirroring horizontally
  std::optional<ColorJitterOptions> color_jitter = {};
  bool trivial_augment = false;                         ///< TrivialAugmentWide
  std::optional<RandAugmentOptions> rand_augment = {};  ///< not together with trivial_augment

  /// Your own step on the image in its finished size, before it is normalised. It must not change the size and the
  /// channels, and draws from the random numbers of the sample. All workers of a loader call it at the same time; its
  /// exceptions are thrown by the read of the sample.
  std::function<void(Image& image, SampleRandom& random)> uint8_step = {};

  std::optional<RandomErasingOptions> random_erasing = {};  ///< not for uint8: it writes normalised values

  Normalization normalization = kImageNetNormalization;  ///< not for uint8
  PixelType type = PixelType::float32;
  Layout layout = Layout::nchw;

  /// Decodes a JPEG at 1/2, 1/4 or 1/8 if the part that is used still has at least as many pixels, in both directions,
  /// as the finished image. Faster for large photographs, with slightly different pixels.
  bool scaled_decoding = false;

  std::uint64_t maximum_pixels = kMaxPixels;  ///< limit for a file's image
};

/// Whether each image has its own size: with shorter_side or scale_jitter.
inline bool has_own_sizes(const ImagePipelineOptions& options) {
  return options.shorter_side.has_value() || options.scale_jitter.has_value();
}

/// ImageNet's training augmentation: random resized crop to `side` x `side` and horizontal flip.
ImagePipelineOptions training_images(int side = 224);

/// ImageNet's evaluation: resize to `short_side` and centre crop to `side` x `side`.
ImagePipelineOptions evaluation_images(int side = 224, int short_side = 256);

/// All random decisions for one image, except those of ImagePipelineOptions::uint8_step and the noise of erasing.
struct ImagePlan {
  ImageHeader header = {};  ///< of the file
  Geometry geometry = {};   ///< the size of the finished image, and the mapping of objects to it
  std::optional<ColorJitter> color_jitter = {};
  std::vector<AugmentStep> augment = {};
  std::optional<Crop> erased = {};

  detail::DecodePlan decode = {};
  Crop filled = {};  ///< the part of the finished image, before it is mirrored, that is not padding
};

/// Decodes, augments, resizes and stores images, one at a time. Of a JPEG only the part that the crop needs is decoded,
/// so that damage elsewhere may go unnoticed. Without scaled_decoding the finished image is bit-identical to that of
/// decoding the whole file, resizing it as a whole if the centre is cropped, and applying one step after the other, on
/// 8-bit pixels until they are normalised.
///
/// Keeps its working memory between images, at most 16 MiB of decoded pixels. Used by one thread at a time.
class ImagePipeline {
 public:
  /// Throws UsageError for options that contradict each other or their documentation.
  explicit ImagePipeline(const ImagePipelineOptions& options);

  const ImagePipelineOptions& options() const { return options_; }

  /// Bytes of a finished image: width * height * channels * element_bytes(type). Throws UsageError with
  /// options that give each image its own size.
  std::size_t bytes() const;
  std::size_t bytes(const ImagePlan& plan) const;

  /// Makes the random decisions for a file with this header. Draws from `random`, in this order, those that the options
  /// enable: the random crop; the flip, if flip_probability is above 0; the colour jitter; the operations of
  /// TrivialAugment or RandAugment; the rectangle to erase. The numbers depend only on the options and the size of the
  /// file's image. `name` is the name of the file in messages.
  ///
  /// Throws EnvironmentError for an image that is too narrow to be resized, or too small for the random crop.
  ImagePlan plan(const ImageHeader& header, SampleRandom& random, const std::string& name = {}) const;

  /// Writes the planned image, contiguous in the options' layout and type, to `to`, which must have bytes(plan) bytes,
  /// aligned for the type. `file` is the file whose header was planned. uint8_step draws from `random`, then the noise
  /// of the erased rectangle. Its time counts for LoaderStage::decode and ::transform.
  ///
  /// Throws EnvironmentError as ImageDecoder does, and UsageError if `to` has another size or uint8_step changed the
  /// size of the image. After an error `to` has unspecified content.
  void render(const ImagePlan& plan, std::span<const std::byte> file, const std::string& name, SampleRandom& random,
              std::span<std::byte> to);

  /// read_image_header(), plan() and render().
  void run(std::span<const std::byte> file, const std::string& name, SampleRandom& random, std::span<std::byte> to);

 private:
  void decode(const ImagePlan& plan, std::span<const std::byte> file, const std::string& name);
  void augment(const ImagePlan& plan, SampleRandom& random);

  ImagePipelineOptions options_;
  ImageDecoder decoder_;
  Resizer resizer_;
  Image decoded_;
  Image augmented_;  // of the finished size, for augmentations
};

}  // namespace libtrain::data
