#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <libtrain/data/image/image_header.hpp>
#include <libtrain/data/sources/image_source.hpp>
#include <libtrain/data/storage/content_hash.hpp>

#include <tools/inspect/inspect_options.hpp>

namespace libtrain::inspect {

/// An image file's bytes and label.
struct StoredImage {
  std::int64_t label = 0;
  data::ContentHash hash = {};  ///< hash of the bytes
};

/// The result of a check. Members are empty if the image could not be read that far.
struct CheckedImage {
  std::optional<StoredImage> stored = {};
  std::optional<data::ImageHeader> header = {};
  long damaged_places = 0;  ///< in a JPEG that was decoded nevertheless, as in training
  std::string damage = {};  ///< why training cannot use the image; empty if it can
};

/// Checks one image; `check` is not Check::none. Any thread may call it. Throws UsageError as ImageSource::read, and
/// StorageUnavailable if the storage fails.
CheckedImage check_image(const data::ImageSource& source, std::uint64_t index, Check check);

}  // namespace libtrain::inspect
