#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <libtrain/data/image/image_header.hpp>
#include <libtrain/data/sources/image_source.hpp>
#include <libtrain/data/storage/content_hash.hpp>

#include <tools/inspect/inspect_options.hpp>

namespace libtrain::inspect {

/// What an image's header says.
struct ImageTraits {
  data::ImageHeader header = {};
  bool has_arithmetic_coding = false;
  bool has_restart_markers = false;
};

/// An image file as it was stored.
struct StoredImage {
  std::int64_t label = 0;
  data::ContentHash hash = {};  ///< of its bytes
};

/// An image as far as it could be read.
struct CheckedImage {
  std::optional<StoredImage> stored = {};
  std::optional<ImageTraits> traits = {};
  long damaged_places = 0;  ///< of a JPEG that was decoded all the same, as training decodes it
  std::string damage = {};  ///< why training could not use it; empty where it could
};

/// Looks at one image as far as `check` says, which is not Check::none. Any thread may call it. Throws UsageError as
/// ImageSource::read does, and StorageUnavailable, which says nothing about the image.
CheckedImage check_image(const data::ImageSource& source, std::uint64_t index, Check check);

}  // namespace libtrain::inspect
