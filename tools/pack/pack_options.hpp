#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <libtrain/data/formats/image_folder.hpp>

#include <tools/pack/output_folder.hpp>
#include <tools/pack/sample_encoder.hpp>
#include <tools/pack/shard_name.hpp>
#include <tools/pack/shard_plan.hpp>

namespace libtrain::pack {

enum class SampleOrder {
  shuffled,
  folder,  ///< the order of list_image_folder(): class by class
};

/// The options of libtrain-pack.
struct PackOptions {
  std::string input = {};   ///< a location for open_storage()
  std::string output = {};  ///< a local path
  NotEmpty where_not_empty = NotEmpty::refuse;
  std::string coco = {};  ///< a split of a data set in COCO's layout, such as "train2017"; empty: an image folder
  data::ImageFolderOptions listing = {};
  std::uint64_t skip_damaged = 0;  ///< largest number of damaged images to leave out

  SampleOrder order = SampleOrder::shuffled;
  std::uint64_t shuffle_seed = 0;
  ShardKind kind = ShardKind::tar;
  std::string prefix = {};  ///< prefix of the shards' names
  ShardPlanOptions plan = {};
  bool write_indices = false;

  EncodingOptions encoding = {};
  int threads = 1;
  bool quiet = false;  ///< no progress
};

/// The parsed command line.
struct CommandLine {
  PackOptions options = {};
  std::optional<std::string> help = {};  ///< the text to print instead of packing
};

/// Throws UsageError for arguments that it cannot parse, and for options that contradict each other.
CommandLine read_command_line(int argc, const char* const* argv);

}  // namespace libtrain::pack
