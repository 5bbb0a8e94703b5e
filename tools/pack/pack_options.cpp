#include <tools/pack/pack_options.hpp>

#include <cstddef>

#include <CLI/CLI.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/location.hpp>

#include <tools/common/command_line.hpp>
#include <tools/common/threads.hpp>

namespace libtrain::pack {

namespace {

constexpr const char* kDescription =
    "Packs a folder of images, one folder a class, into shards that are read from their beginning to their end: tar\n"
    "archives in WebDataset's layout, or TFRecord files of tf.train.Example. Images are stored byte for byte unless\n"
    "--resize or --restart-interval is given. Besides the shards there is classes.txt, the names of the classes by "
    "label.";

constexpr std::size_t kLongestPrefix = 200;

// Options as they are written.
struct Words {
  std::string format = {};
  std::string order = "shuffled";
  std::optional<std::uint64_t> shuffle_seed = {};
  std::string check = "decode";
  bool force = false;
};

void add_folder_options(CLI::App& app, PackOptions& options, Words& words) {
  app.add_option("--input", options.input, "The image folder: a local path, or a URI such as az://container/train")
      ->required();
  app.add_option("--output", options.output, "The local folder for the shards; made where it is missing")->required();
  app.add_flag("--force", words.force,
               "Write to a folder that is not empty; shards of the same prefix and format in it are removed once the "
               "new ones are complete");
  app.add_flag("--allow-empty-classes", options.listing.allow_empty_classes,
               "Let a class without images keep its label, rather than to fail");
  app.add_flag("--skip-unsupported", options.listing.skip_unsupported,
               "Leave out images of other formats than JPEG and PNG, rather than to fail");
  app.add_option("--skip-damaged", options.skip_damaged,
                 "Leave out, and name, at most so many images that are damaged or cannot be read")
      ->capture_default_str();
}

void add_shard_options(CLI::App& app, PackOptions& options, Words& words) {
  app.add_option("--format", words.format, "tar or tfrecord")->required()->check(CLI::IsMember({"tar", "tfrecord"}));
  app.add_option("--prefix", options.prefix,
                 "What the shards' names begin with (default: the last part of --input, such as train)");
  auto* const shard_bytes =
      app.add_option("--shard-bytes", options.plan.shard_bytes,
                     "Size of a shard, about, by the images' sizes before --resize (default: 256M)")
          ->transform(CLI::AsSizeValue(false))
          ->check(CLI::PositiveNumber);
  app.add_option("--shards", options.plan.shards, "Number of shards, instead of their size")
      ->check(CLI::Range(std::uint64_t{1}, kMaxShards))
      ->excludes(shard_bytes);
  app.add_option("--order", words.order,
                 "shuffled: the classes mixed, as is needed where training shuffles among a few shards at a time; "
                 "folder: class by class")
      ->capture_default_str()
      ->check(CLI::IsMember({"shuffled", "folder"}));
  app.add_option("--shuffle-seed", words.shuffle_seed, "Which of the shuffled orders (default: 0)");
  app.add_flag("--index", options.write_indices,
               "Keep the shards' indices in OUTPUT/.index, for runs that name the folder as --output does");
}

void add_image_options(CLI::App& app, PackOptions& options, Words& words) {
  app.add_option("--restart-interval", options.encoding.restart_interval,
                 "Give JPEGs restart markers about every so many MCUs, without loss: random crops are decoded faster; "
                 "4 is fastest, 8 smallest")
      ->check(CLI::Range(4, 8));
  auto* const resize = app.add_option("--resize", options.encoding.short_side,
                                      "Shrink images to this shorter side, in pixels, and store those as JPEGs")
                           ->check(CLI::Range(1, kLargestJpegSide));
  app.add_option("--quality", options.encoding.quality, "Of those JPEGs")
      ->capture_default_str()
      ->check(CLI::Range(1, 100))
      ->needs(resize);
  app.add_option("--check", words.check,
                 "decode: every image is decoded to find damage; header: only what its header says is checked")
      ->capture_default_str()
      ->check(CLI::IsMember({"decode", "header"}));
  app.add_option("--threads", options.threads, "Threads that read and encode images")
      ->capture_default_str()
      ->check(CLI::Range(1, tools::kMaxThreads));
  app.add_flag("--quiet", options.quiet, "No progress");
}

void interpret(const Words& words, PackOptions& options) {
  if (words.order == "folder" && words.shuffle_seed) {
    throw UsageError(
        text("--shuffle-seed ", *words.shuffle_seed, " has no meaning with --order folder; leave out one of them."));
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
  throw UsageError(text("The shards' names cannot begin with '", prefix, "': set --prefix to at most ", kLongestPrefix,
                        " characters without a slash, and without a dot in front."));
}

// Locations become local paths and names.
void resolve(PackOptions& options) {
  const auto output = data::detail::parse_location(options.output);
  if (output.kind != data::detail::StorageKind::local) {
    throw UsageError(text("--output is '", output.name,
                          "', but shards are written to local folders only; upload the folder when it is complete."));
  }
  options.output = output.path;
  const auto input = data::detail::parse_location(options.input);
  if (options.prefix.empty()) options.prefix = default_prefix(input);
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
