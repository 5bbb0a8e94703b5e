// Reads one rank's share of a folder of images or shards and prints what it gets, for loader_test.py,
// azurite_loader_test.py and azurite_shards_test.py:
//
//   loader_program --data az://container/train --rank 1 --world-size 3 --batch-size 6 --state state.json
//
// One JSON object a line: {"images", "steps"} once they are listed; for every sample of a batch {"epoch", "step",
// "position", "label", "crc32c"}, the checksum being that of the finished image's bytes; after every epoch {"ended"}
// with the numbers of the cache until then.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <c10/core/Device.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <libtrain/base/detail/crc32c.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/data_loader.hpp>
#include <libtrain/data/image_dataset.hpp>
#include <libtrain/data/image_folder.hpp>
#include <libtrain/data/sources/open_image_source.hpp>
#include <libtrain/data/storage/cached_storage.hpp>
#include <libtrain/data/storage/file_cache.hpp>
#include <libtrain/data/storage/open_storage.hpp>

#include <tests/support/run_program.hpp>

namespace {

using Json = nlohmann::ordered_json;
namespace data = libtrain::data;

constexpr int kSide = 32;

struct Options {
  std::string location;
  bool shards = false;
  int rank = 0;
  int world_size = 1;
  std::uint64_t batch_size = 8;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t epochs = 1;
  int workers = 2;
  std::string remainder = "pad";
  std::uint64_t stop_after = std::numeric_limits<std::uint64_t>::max();
  std::string state;
  bool resume = false;
  std::string cache;
  std::string output;
  std::uint64_t pause_after = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t max_bad = 0;
  bool wait = false;
};

void print(const Json& json) {
  std::cout << json.dump() << '\n';
}

void print_batch(const data::Batch& batch, std::uint64_t epoch, std::uint64_t step) {
  if (batch.size() == 0) return;
  const auto samples = static_cast<std::size_t>(batch.size());
  const std::span pixels{static_cast<const std::byte*>(batch.images.const_data_ptr()), batch.images.nbytes()};
  const std::size_t bytes = pixels.size() / samples;
  const auto* labels = batch.labels.const_data_ptr<std::int64_t>();
  for (std::size_t sample = 0; sample < samples; ++sample) {
    print(Json{{"epoch", epoch},
               {"step", step},
               {"position", sample},
               {"label", labels[sample]},
               {"crc32c", libtrain::detail::crc32c(pixels.subspan(sample * bytes, bytes))}});
  }
  std::cout.flush();
}

void print_end(std::uint64_t epoch, const data::FileCache* cache) {
  const auto numbers = cache == nullptr ? data::FileCacheStatistics{} : cache->statistics();
  print(Json{{"ended", epoch},
             {"cache_hits", numbers.hits},
             {"cache_misses", numbers.misses},
             {"cache_bypasses", numbers.bypasses},
             {"fetched_files", numbers.fetched_files}});
  std::cout.flush();
}

data::LoaderState read_state(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return data::LoaderState::from_text(line);
}

void write_state(const std::string& path, const data::LoaderState& state) {
  std::ofstream file(path);
  file << state.to_text() << '\n';
  if (!file.flush()) throw libtrain::EnvironmentError(libtrain::text("Cannot write '", path, "'."));
}

data::Remainder remainder_of(const std::string& name) {
  static const std::map<std::string, data::Remainder> remainders{{"pad", data::Remainder::pad},
                                                                 {"drop", data::Remainder::drop},
                                                                 {"exact", data::Remainder::exact},
                                                                 {"uneven", data::Remainder::uneven}};
  return remainders.at(name);
}

// Tries again soon, so that an outage costs a test little more time than it lasts.
std::shared_ptr<const data::Storage> open_remote(const Options& options) {
  data::StorageOptions storage;
  storage.retry.first_wait = std::chrono::milliseconds{100};
  storage.retry.longest_wait = std::chrono::milliseconds{1000};
  return data::open_storage(options.location, storage);
}

std::shared_ptr<data::FileCache> open_cache(const Options& options) {
  if (options.cache.empty()) return nullptr;
  return std::make_shared<data::FileCache>(
      data::FileCacheOptions{.directory = options.cache, .free_space_reserve_bytes = 0});
}

std::unique_ptr<const data::ImageDataset> open_images(std::shared_ptr<const data::Storage> storage,
                                                      const Options& options) {
  const auto images = data::training_images(kSide);
  if (!options.shards) return std::make_unique<const data::ImageFolder>(std::move(storage), images);
  return std::make_unique<const data::ImageDataset>(data::open_image_source(std::move(storage)), images);
}

void wait_for_line() {
  std::string line;
  std::getline(std::cin, line);
}

// The state in which the epoch is left.
data::LoaderState run_epoch(data::LoaderEpoch epoch, std::uint64_t number, const Options& options) {
  for (std::uint64_t step = 0; step < options.stop_after; ++step) {
    const auto batch = epoch.next();
    if (!batch) break;
    print_batch(*batch, number, step);
    if (step == options.pause_after) wait_for_line();
  }
  return epoch.state();
}

void run(const Options& options) {
  std::shared_ptr<const data::Storage> storage = open_remote(options);
  const auto cache = open_cache(options);
  if (cache) storage = std::make_shared<const data::CachedStorage>(std::move(storage), cache);
  const auto images = open_images(std::move(storage), options);
  data::DataLoader loader{
      *images,
      {.batch_size = options.batch_size,
       .workers = options.workers,
       .order = options.shards ? data::Order::blocks : data::Order::shuffled,
       .remainder = remainder_of(options.remainder),
       .bad_samples = {.maximum_count = options.max_bad}},
      data::RankShard({.rank = options.rank, .world_size = options.world_size, .seed = options.seed}, c10::kCPU,
                      options.output)};
  data::LoaderState state{.epoch = options.epoch};
  if (options.resume) state = read_state(options.state);
  print(Json{{"images", images->size()}, {"steps", loader.batches_per_epoch()}});
  std::cout.flush();

  for (std::uint64_t done = 0; done < options.epochs; ++done) {
    const std::uint64_t number = state.epoch + (done > 0 ? 1 : 0);
    if (options.wait) wait_for_line();
    const bool resumes = done == 0 && options.resume;
    state = run_epoch(resumes ? loader.resume(state) : loader.epoch(number), number, options);
    print_end(state.epoch, cache.get());
  }
  if (!options.state.empty()) write_state(options.state, state);
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("--data", options.location, "local path or URI of the folder")->required();
  app.add_flag("--shards", options.shards, "it holds shards, of which a few are read at a time");
  app.add_option("--rank", options.rank);
  app.add_option("--world-size", options.world_size);
  app.add_option("--batch-size", options.batch_size, "samples per rank and step");
  app.add_option("--seed", options.seed);
  app.add_option("--epoch", options.epoch, "the first one");
  app.add_option("--epochs", options.epochs, "how many, one after the other");
  app.add_option("--workers", options.workers);
  app.add_option("--remainder", options.remainder)->check(CLI::IsMember({"pad", "drop", "exact", "uneven"}));
  app.add_option("--stop-after", options.stop_after, "steps of an epoch after which it is left");
  auto* state = app.add_option("--state", options.state, "file for where the loader stands at the end");
  app.add_flag("--resume", options.resume, "go on from what that file says")->needs(state);
  app.add_option("--cache", options.cache, "folder that keeps what is read");
  app.add_option("--output", options.output, "folder for bad_samples.jsonl");
  app.add_option("--pause-after", options.pause_after, "step behind which it waits for a line on standard input");
  app.add_option("--max-bad", options.max_bad, "BadSampleOptions::maximum_count");
  app.add_flag("--wait", options.wait, "begin each epoch when a line comes on standard input");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Prints the samples that one rank gets of a folder of images or shards as JSON lines."};
  Options options;
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  return libtrain::test::run_program([&] { run(options); }, libtrain::log_error);
}
