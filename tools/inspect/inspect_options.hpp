#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tools/inspect/data_format.hpp>

namespace libtrain::inspect {

/// How much of each sample is looked at.
enum class Check {
  none,     ///< nothing: only what listing and opening the data tell
  headers,  ///< an image's bytes and its header, a row's fields
  decode,   ///< an image's pixels as well, as training decodes them
};

/// As the option has it.
const char* name_of(Check check);

enum class Augmentation {
  training,    ///< random resized crops and flips, beside the plain picture
  evaluation,  ///< none: plain pictures only
};

struct ContactSheetOptions {
  std::string path = {};       ///< local, of the PNG
  std::uint64_t samples = 24;  ///< at most
  Augmentation augmentation = Augmentation::training;
  int side = 224;          ///< of a picture, in pixels
  std::uint64_t seed = 0;  ///< as a loader's: of the order of samples, and of what is drawn for each
};

/// What to look at, and how.
struct InspectOptions {
  std::string data = {};  ///< a location as open_storage() takes it
  DataFormat format = DataFormat::images;
  std::string prefix = {};  ///< shards whose names begin otherwise are left out
  Check check = Check::headers;
  int threads = 1;
  std::optional<ContactSheetOptions> sheet = {};
  bool as_json = false;
  bool quiet = false;  ///< no progress
};

/// The command line, read.
struct CommandLine {
  InspectOptions options = {};
  std::optional<std::string> help = {};  ///< the text to print instead of looking
};

/// Throws UsageError for what it cannot read, and for options that contradict each other.
CommandLine read_command_line(int argc, const char* const* argv);

}  // namespace libtrain::inspect
