#pragma once

#include <optional>
#include <string_view>

namespace libtrain::inspect {

/// What a set of data is kept in.
enum class DataFormat {
  images,  ///< a folder of image folders, or of shards that hold images
  coco,    ///< a COCO instances file
  csv,
  tsv,         ///< fields between tabs, in which quotes are ordinary characters
  json_lines,  ///< one JSON object a line
  idx,         ///< an array of bytes, as MNIST's files are
};

/// By how the name of a file ends, letters in any case: .json is COCO, .csv, .tsv, .jsonl or .ndjson, .idx or -ubyte.
/// All else is a folder of images.
DataFormat format_of(std::string_view name);

/// By the word that --format has for it; nothing for any other.
std::optional<DataFormat> format_named(std::string_view word);

}  // namespace libtrain::inspect
