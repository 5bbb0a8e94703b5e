#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <libtrain/data/formats/detail/shard_plan.hpp>
#include <libtrain/data/formats/image_folder.hpp>

#include <tools/pack/output_folder.hpp>
#include <tools/pack/sample_encoder.hpp>
#include <tools/pack/shard_name.hpp>

namespace libtrain::pack {

enum class SampleOrder {
  shuffled,
  folder,  ///< that of list_image_folder(): class by class
};

/// What to pack, and how.
struct PackOptions {
  std::string input = {};   ///< a location as open_storage() takes it
  std::string output = {};  ///< a local path
  NotEmpty where_not_empty = NotEmpty::refuse;
  data::ImageFolderOptions listing = {};
  std::uint64_t skip_damaged = 0;  ///< at most so many damaged images are left out rather than to fail

  SampleOrder order = SampleOrder::shuffled;
  std::uint64_t shuffle_seed = 0;
  ShardKind kind = ShardKind::tar;
  std::string prefix = {};  ///< of the shards' names
  data::detail::ShardPlanOptions plan = {};
  bool write_indices = false;

  EncodingOptions encoding = {};
  int threads = 1;
  bool quiet = false;  ///< no progress
};

/// The command line, read.
struct CommandLine {
  PackOptions options = {};
  std::optional<std::string> help = {};  ///< the text to print instead of packing
};

/// Throws UsageError for what it cannot read, and for options that contradict each other.
CommandLine read_command_line(int argc, const char* const* argv);

}  // namespace libtrain::pack
