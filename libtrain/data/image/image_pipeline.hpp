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

/// How an image file becomes a picture, by the steps of torchvision's reference training in its order: crop and resize,
/// mirror, change colours, TrivialAugment or RandAugment, a step of your own, normalise, erase.
struct ImagePipelineOptions {
  int width = 224;  ///< of the finished picture, 1 to 65535
  int height = 224;
  int channels = 3;  ///< 3: red, green, blue; 1: grey

  /// What becomes the picture. At most one of the three; without any, the shorter side becomes `short_side` pixels, no
  /// fewer than the finished picture has in either direction, and the middle is cut out.
  std::optional<RandomResizedCropOptions> random_resized_crop = {};  ///< a random rectangle, resized
  std::optional<RandomCropOptions> random_crop = {};                 ///< one of the finished size, perhaps padded
  std::optional<ShorterSide> shorter_side = {};  ///< all of it: each picture has its own size, not width x height
  int short_side = 256;

  double flip_probability = 0;  ///< of mirroring left and right
  std::optional<ColorJitterOptions> color_jitter = {};
  bool trivial_augment = false;                         ///< TrivialAugmentWide
  std::optional<RandAugmentOptions> rand_augment = {};  ///< not together with trivial_augment

  /// A step of your own on the picture in its finished size, before it is normalised. It must leave the size and the
  /// channels as they are. It draws from the random numbers of the sample. All workers of a loader call it, at the same
  /// time; what it throws, the sample's reading throws.
  std::function<void(Image& picture, SampleRandom& random)> uint8_step = {};

  std::optional<RandomErasingOptions> random_erasing = {};  ///< not for uint8: it writes normalised values

  Normalization normalization = kImageNetNormalization;
  PixelType type = PixelType::float32;
  Layout layout = Layout::nchw;

  /// Lets a JPEG be decoded at 1/2, 1/4 or 1/8 where what becomes the finished picture still has no fewer pixels than
  /// it, in either direction: faster for large photographs, with slightly other pixels.
  bool scaled_decoding = false;

  std::uint64_t maximum_pixels = kMaxPixels;  ///< of a file: larger ones are refused
};

/// Random resized crop and flip to `side` x `side`, as ImageNet is trained on.
ImagePipelineOptions training_images(int side = 224);

/// Resize to `short_side` and centre crop, as it is evaluated.
ImagePipelineOptions evaluation_images(int side = 224, int short_side = 256);

/// All that was drawn for one picture, but for the noise that erases and what ImagePipelineOptions::uint8_step draws.
struct PicturePlan {
  ImageHeader header = {};  ///< of the file
  Geometry geometry = {};   ///< the size of the finished picture, and where objects of the file lie in it
  std::optional<ColorJitter> color_jitter = {};
  std::vector<AugmentStep> augment = {};
  std::optional<Crop> erased = {};

  detail::DecodePlan decode = {};
  Crop filled = {};  ///< of the finished picture, before it is mirrored: what is not padding
};

/// Decodes, augments, resizes and stores pictures, one at a time. Of a JPEG only the part that the crop needs is
/// decoded, so that damage elsewhere may go unnoticed. Without scaled_decoding the finished picture is, bit by bit,
/// that of decoding the whole file, where the middle is cut out of resizing it as a whole, and of one step after the
/// other, on 8-bit pixels until they are normalised.
///
/// Keeps its working memory between pictures, at most 16 MiB of decoded pixels. Used by one thread at a time.
class ImagePipeline {
 public:
  /// Throws UsageError for options that contradict each other or their documentation.
  explicit ImagePipeline(const ImagePipelineOptions& options);

  const ImagePipelineOptions& options() const { return options_; }

  /// Bytes of a finished picture: width * height * channels * element_bytes(type). Throws UsageError where
  /// ImagePipelineOptions::shorter_side gives each picture its own size.
  std::size_t bytes() const;
  std::size_t bytes(const PicturePlan& plan) const;

  /// Draws how a file with that header becomes a picture. Draws from `random`, in this order, what the options ask for:
  /// the random crop; whether to flip, where flip_probability is above 0; the colour jitter; the operations of
  /// TrivialAugment or RandAugment; the rectangle to erase. Which numbers are drawn depends on the options and the size
  /// of the file's picture only. `name` is how messages name the file.
  ///
  /// Throws EnvironmentError for a picture so narrow that it cannot be resized, or so small that the random crop does
  /// not fit it.
  PicturePlan plan(const ImageHeader& header, SampleRandom& random, const std::string& name = {}) const;

  /// Writes the picture that was planned, dense in the options' layout and type, to `to`, of bytes(plan) bytes, aligned
  /// for the type. `file` is the one whose header was planned with. Draws from `random` what uint8_step draws, then the
  /// noise of what is erased. Charges its time to LoaderStage::decode and ::transform.
  ///
  /// Throws EnvironmentError as ImageDecoder does, and UsageError where `to` has another size, or where uint8_step
  /// changed that of the picture. After an error `to` has any content.
  void render(const PicturePlan& plan, std::span<const std::byte> file, const std::string& name, SampleRandom& random,
              std::span<std::byte> to);

  /// read_image_header(), plan() and render().
  void run(std::span<const std::byte> file, const std::string& name, SampleRandom& random, std::span<std::byte> to);

 private:
  void decode(const PicturePlan& plan, std::span<const std::byte> file, const std::string& name);
  void augment(const PicturePlan& plan, SampleRandom& random);

  ImagePipelineOptions options_;
  ImageDecoder decoder_;
  Resizer resizer_;
  Image decoded_;
  Image augmented_;  // of the finished size, where colours or places change
};

}  // namespace libtrain::data
