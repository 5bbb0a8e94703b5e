#pragma once

#include <optional>
#include <string>

#include <libtrain/data/image/image_header.hpp>

namespace libtrain::pack {

/// Of a JPEG that libjpeg writes, in pixels.
inline constexpr int kLargestJpegSide = 65'500;

/// How much of an image is looked at before it is stored.
enum class ImageCheck {
  decode,  ///< all of it, as training will
  header,  ///< format and size
};

struct EncodingOptions {
  /// Pictures whose shorter side is longer are shrunk to it and stored as JPEGs.
  std::optional<int> short_side = {};
  int quality = 95;  ///< of those JPEGs

  /// MCUs between the restart markers that JPEGs get where that can be done without loss; see RestartOptions.
  std::optional<int> restart_interval = {};

  ImageCheck check = ImageCheck::decode;
};

/// An image file as it is stored.
struct EncodedSample {
  std::string bytes = {};
  data::ImageFormat format = data::ImageFormat::unknown;
  int width = 0;  ///< pixels
  int height = 0;
  bool is_resized = false;
  bool has_new_markers = false;  ///< got restart markers

  /// Every byte is the image file's.
  bool is_unchanged() const { return !is_resized && !has_new_markers; }
};

/// Makes what is stored of the image file `file`, whose name in messages is `name`; its extension plays no role. Throws
/// EnvironmentError for a file that is damaged as far as options.check looks, neither a JPEG nor a PNG, or too long for
/// a JPEG when it is shrunk. Any thread may call it.
EncodedSample encode_sample(std::string file, const std::string& name, const EncodingOptions& options);

}  // namespace libtrain::pack
