#include <tools/pack/pack_options.hpp>

#include <cstddef>

#include <CLI/CLI.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/location.hpp>

#include <tools/common/tool.hpp>

namespace libtrain::pack {

namespace {

constexpr const char* kDescription =
    "Packs a folder of images, one folder per class, into shards that can be read sequentially: tar archives in\n"
    "WebDataset's layout, or TFRecord files of tf.train.Example. Images are stored byte for byte unless --resize or\n"
    "--restart-interval is given. Also writes classes.txt, the names of the classes by label. Or packs the images of "
    "a\n"
    "data set in COCO's layout into tar archives, in the same layout beside a copy of its annotations (--coco).";

constexpr std::size_t kLongestPrefix = 200;

// The values of options before they are interpreted.
struct Words {
  std::string format = {};
  std::string order = "shuffled";
  std::optional<std::uint64_t> shuffle_seed = {};
  std::string check = "decode";
  bool force = false;
};

// Returns what CLI11 prints for a value that it refuses.
std::string folder_name(const std::string& value) {
  if (!value.empty() && !value.starts_with('.') && value.find('/') == std::string::npos) return {};
  return text("'", value, "' is not the name of a folder of images in --input, such as train2017");
}

void add_folder_options(CLI::App& app, PackOptions& options, Words& words) {
  app.add_option("--input", options.input, "The image folder: a local path, or a URI such as az://container/train")
      ->required();
  auto* const coco = app.add_option("--coco", options.coco,
                                    "Pack this split, such as train2017, of a data set in COCO's layout at --input: "
                                    "the images that annotations/instances_train2017.json lists, and that file")
                         ->check(folder_name, "");
  app.add_option("--output", options.output, "The local folder for the shards; created if it does not exist")
      ->required();
  app.add_flag("--force", words.force,
               "Write to a folder that is not empty; shards of the same prefix and format in it are removed when the "
               "new ones are complete");
  app.add_flag("--allow-empty-classes", options.listing.allow_empty_classes,
               "Keep the label of a class without images instead of failing")
      ->excludes(coco);
  app.add_flag("--skip-unsupported", options.listing.skip_unsupported,
               "Leave out images of formats other than JPEG and PNG instead of failing")
      ->excludes(coco);
  app.add_option("--skip-damaged", options.skip_damaged,
                 "Largest number of images to leave out, with a warning, because they are damaged or cannot be read")
      ->capture_default_str()
      ->excludes(coco);
}

void add_shard_options(CLI::App& app, PackOptions& options, Words& words) {
  app.add_option("--format", words.format, "tar or tfrecord")->required()->check(CLI::IsMember({"tar", "tfrecord"}));
  app.add_option("--prefix", options.prefix,
                 "Beginning of the shards' names (default: the last part of --input, such as train)");
  auto* const shard_bytes =
      app.add_option("--shard-bytes", options.plan.shard_bytes,
                     "Approximate size of a shard, by the images' sizes before --resize (default: 256M)")
          ->transform(CLI::AsSizeValue(false))
          ->check(CLI::PositiveNumber);
  app.add_option("--shards", options.plan.shards, "Number of shards, instead of their size")
      ->check(CLI::Range(std::uint64_t{1}, kMaxShards))
      ->excludes(shard_bytes);
  app.add_option("--order", words.order,
                 "shuffled: mix the classes, as needed if training shuffles within a few shards at a time; "
                 "folder: class by class")
      ->capture_default_str()
      ->check(CLI::IsMember({"shuffled", "folder"}));
  app.add_option("--shuffle-seed", words.shuffle_seed, "Seed of the shuffled order (default: 0)");
  app.add_flag("--index", options.write_indices,
               "Write the shards' indices to OUTPUT/.index, the index_folder of runs on this folder or a copy of it");
}

void add_image_options(CLI::App& app, PackOptions& options, Words& words) {
  app.add_option("--restart-interval", options.encoding.restart_interval,
                 "Add restart markers to JPEGs without loss, about one per this number of MCUs, so that random crops "
                 "decode faster; 4 is fastest, 8 smallest")
      ->check(CLI::Range(4, 8));
  auto* const resize = app.add_option("--resize", options.encoding.short_side,
                                      "Shrink larger images to this shorter side, in pixels, and store them as JPEGs")
                           ->check(CLI::Range(1, kLargestJpegSide))
                           ->excludes("--coco");
  app.add_option("--quality", options.encoding.quality, "Quality of those JPEGs")
      ->capture_default_str()
      ->check(CLI::Range(1, 100))
      ->needs(resize);
  app.add_option("--check", words.check, "decode: decode every image to find damage; header: check only its header")
      ->capture_default_str()
      ->check(CLI::IsMember({"decode", "header"}));
  app.add_option("--threads", options.threads, "Threads that read and encode images")
      ->capture_default_str()
      ->check(CLI::Range(1, tools::kMaxThreads));
  app.add_flag("--quiet", options.quiet, "Show no progress");
}

void interpret(const Words& words, PackOptions& options) {
  if (words.order == "folder" && words.shuffle_seed) {
    throw UsageError(text("--shuffle-seed ", *words.shuffle_seed,
                          " has no effect with --order folder. Remove one of the two options."));
  }
  if (!options.coco.empty() && words.format != "tar") {
    throw UsageError(text("--format ", words.format,
                          " cannot be combined with --coco: annotations refer to images by their names, which only "
                          "tar archives list. Set --format tar."));
  }
  options.shuffle_seed = words.shuffle_seed.value_or(0);
  options.kind = words.format == "tar" ? ShardKind::tar : ShardKind::tf_record;
  options.order = words.order == "folder" ? SampleOrder::folder : SampleOrder::shuffled;
  options.encoding.check = words.check == "header" ? ImageCheck::header : ImageCheck::decode;
  options.where_not_empty = words.force ? NotEmpty::add_to : NotEmpty::refuse;
}

// "images" for a folder such as "." or a whole container.
std::string default_prefix(const data::detail::Location& input) {
  const std::string last = input.path.substr(input.path.rfind('/') + 1);
  return last.empty() || last == "." || last == ".." ? "images" : last;
}

void require_prefix(const std::string& prefix) {
  if (prefix.size() <= kLongestPrefix && !prefix.starts_with('.') && prefix.find('/') == std::string::npos) return;
  throw UsageError(text("The shards' names cannot begin with '", prefix, "'. Set --prefix to at most ", kLongestPrefix,
                        " characters without a slash and without a leading dot."));
}

// Turns locations into local paths and names.
void resolve(PackOptions& options) {
  const auto output = data::detail::parse_location(options.output);
  if (output.kind != data::detail::StorageKind::local) {
    throw UsageError(text(
        "--output is '", output.name,
        "', but shards can only be written to a local folder. Set a local path, and upload the folder afterwards."));
  }
  options.output = output.path;
  const auto input = data::detail::parse_location(options.input);
  if (options.prefix.empty()) options.prefix = options.coco.empty() ? default_prefix(input) : options.coco;
  require_prefix(options.prefix);
}

}  // namespace

CommandLine read_command_line(int argc, const char* const* argv) {
  CommandLine line;
  line.options.threads = tools::default_threads();
  Words words;
  CLI::App app{kDescription};
  add_folder_options(app, line.options, words);
  add_shard_options(app, line.options, words);
  add_image_options(app, line.options, words);
  line.help = tools::read_arguments(app, "libtrain-pack", argc, argv);
  if (line.help) return line;
  interpret(words, line.options);
  resolve(line.options);
  return line;
}

}  // namespace libtrain::pack
