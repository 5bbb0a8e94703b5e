#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace libtrain::inspect {

enum class DataFormat {
  images,  ///< a folder of image folders, or of shards that contain images
  coco,    ///< a COCO instances file
  csv,
  tsv,         ///< tab-separated; quotes are ordinary characters
  json_lines,  ///< one JSON object per line
  idx,         ///< an array of bytes, the format of MNIST's files
};

/// How much of each sample is checked.
enum class Check {
  none,     ///< nothing: the data are only listed and opened
  headers,  ///< an image's bytes and header, a row's fields
  decode,   ///< also an image's pixels, decoded as in training
};

/// The value of --check.
const char* name_of(Check check);

enum class Augmentation {
  training,    ///< the plain picture, and random resized crops and flips
  evaluation,  ///< plain pictures only
};

struct ContactSheetOptions {
  std::string path = {};       ///< local path of the PNG
  std::uint64_t samples = 24;  ///< largest number of samples
  Augmentation augmentation = Augmentation::training;
  int side = 224;          ///< side of a picture in pixels
  std::uint64_t seed = 0;  ///< seed of the order of samples and of the random crops and flips, as in a loader
};

/// The options of libtrain-inspect.
struct InspectOptions {
  std::string data = {};  ///< a location for open_storage()
  DataFormat format = DataFormat::images;
  std::string prefix = {};  ///< only shards whose names begin with it are read
  Check check = Check::headers;
  int threads = 1;
  std::optional<ContactSheetOptions> sheet = {};
  bool as_json = false;
  bool quiet = false;  ///< no progress
};

/// The parsed command line.
struct CommandLine {
  InspectOptions options = {};
  std::optional<std::string> help = {};  ///< the text to print instead of inspecting
};

/// Throws UsageError for arguments that it cannot parse, and for options that contradict each other.
CommandLine read_command_line(int argc, const char* const* argv);

}  // namespace libtrain::inspect
