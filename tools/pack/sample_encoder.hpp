#pragma once

#include <optional>
#include <string>

#include <libtrain/data/image/image_header.hpp>

namespace libtrain::pack {

/// The longest side of a JPEG that libjpeg writes, in pixels.
inline constexpr int kLargestJpegSide = 65'500;

/// How much of an image is checked before it is stored.
enum class ImageCheck {
  decode,  ///< all of it, as in training
  header,  ///< format and size
};

struct EncodingOptions {
  /// Images with a longer shorter side are shrunk to this one and stored as JPEGs.
  std::optional<int> short_side = {};
  int quality = 95;  ///< quality of those JPEGs

  /// MCUs between the restart markers that are added to JPEGs if that is possible without loss; see RestartOptions.
  std::optional<int> restart_interval = {};

  ImageCheck check = ImageCheck::decode;
};

/// An image file to store.
struct EncodedSample {
  std::string bytes = {};
  data::ImageFormat format = data::ImageFormat::unknown;
  int width = 0;  ///< pixels
  int height = 0;
  bool is_resized = false;
  bool has_new_markers = false;  ///< restart markers were added

  /// Whether the bytes are those of the original file.
  bool is_unchanged() const { return !is_resized && !has_new_markers; }
};

/// Encodes the image file `file`; `name` is its name in messages, whose extension is ignored. Throws EnvironmentError
/// for a file in which options.check finds damage, that is neither a JPEG nor a PNG, or that would be too long for a
/// JPEG after shrinking. Any thread may call it.
EncodedSample encode_sample(std::string file, const std::string& name, const EncodingOptions& options);

}  // namespace libtrain::pack
