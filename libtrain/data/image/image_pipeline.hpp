#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <libtrain/data/image/color_jitter.hpp>
#include <libtrain/data/image/crop_policy.hpp>
#include <libtrain/data/image/decode_image.hpp>
#include <libtrain/data/image/decode_options.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/pixel_format.hpp>
#include <libtrain/data/image/random_erasing.hpp>
#include <libtrain/data/image/resize.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

/// How an image file becomes a picture of fixed size, by the steps of torchvision's reference training in its order:
/// crop and resize, mirror, change colours, TrivialAugment, normalise, erase.
struct ImagePipelineOptions {
  int width = 224;  ///< of the finished picture, 1 to 65535
  int height = 224;
  int channels = 3;  ///< 3: red, green, blue; 1: grey

  /// A random rectangle becomes the picture; without it, the shorter side becomes `short_side` pixels, no fewer than
  /// the finished picture has in either direction, and the middle is cut out.
  std::optional<RandomResizedCropOptions> random_resized_crop = {};
  int short_side = 256;

  double flip_probability = 0;  ///< of mirroring left and right
  std::optional<ColorJitterOptions> color_jitter = {};
  bool trivial_augment = false;                             ///< TrivialAugmentWide
  std::optional<RandomErasingOptions> random_erasing = {};  ///< not for uint8: it writes normalised values

  Normalization normalization = kImageNetNormalization;
  PixelType type = PixelType::float32;
  Layout layout = Layout::nchw;

  /// Lets a JPEG be decoded at 1/2, 1/4 or 1/8 where what becomes the finished picture still has no fewer pixels than
  /// it, in either direction: faster for large photographs, with slightly other pixels.
  bool scaled_decoding = false;

  std::uint64_t maximum_pixels = kMaximumPixels;  ///< of a file: larger ones are refused
};

/// Random resized crop and flip to `side` x `side`, as ImageNet is trained on.
ImagePipelineOptions training_images(int side = 224);

/// Resize to `short_side` and centre crop, as it is evaluated.
ImagePipelineOptions evaluation_images(int side = 224, int short_side = 256);

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

  /// Bytes of a finished picture: width * height * channels * element_bytes(type).
  std::size_t bytes() const;

  /// Writes the finished picture, dense in the options' layout and type, to `to`, of bytes() bytes, aligned for the
  /// type. `name` is how messages name the file. Charges its time to LoaderStage::decode and ::transform.
  ///
  /// Draws from `random`, in this order, what the options ask for: the random resized crop; whether to flip, where
  /// flip_probability is above 0; the colour jitter; TrivialAugment's operation; the rectangle to erase, and the noise
  /// in it. Which numbers are drawn depends on the options and the size of the file's picture only.
  ///
  /// Throws EnvironmentError as ImageDecoder does, and for a picture so narrow that it cannot be resized; UsageError
  /// where `to` has another size. After an error `to` has any content.
  void run(std::span<const std::byte> file, const std::string& name, SampleRandom& random, std::span<std::byte> to);

 private:
  void decode(std::span<const std::byte> file, const DecodeOptions& options);

  ImagePipelineOptions options_;
  ImageDecoder decoder_;
  Resizer resizer_;
  Image decoded_;
  Image augmented_;  // of the finished size, where colours or places change
};

}  // namespace libtrain::data
