// Writes checkpoints to a folder and to an object store, and fetches them, for checkpoint_store_test.py:
//
//   checkpoint_store_program save s3://data/run root run-1,run-2 100 200     prints "saved 100" or "failed 100: why"
//   checkpoint_store_program fetch s3://data/run root                        prints "newest 200", or "newest -1"
//
// With --pause NAME, "putting NAME" is printed before this object is put for the first time, and a line awaited.

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/checkpoint_file_writer.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/checkpoint/checkpoint_writer.hpp>
#include <libtrain/checkpoint/detail/checkpoint_uploader.hpp>
#include <libtrain/data/storage/detail/arrow_object_store.hpp>

#include <tests/checkpoint/checkpoint_bytes.hpp>
#include <tests/support/run_program.hpp>

namespace {

using namespace libtrain;
using test::checkpoint_bytes;

struct Options {
  std::string location = {};
  std::string root = {};
  std::string runs = {};
  std::vector<std::int64_t> steps = {};
  std::size_t bytes = 1000;
  int keep = 2;
  int deadline_ms = 300'000;
  std::string pause = {};
};

class PausingStore final : public detail::ObjectStore {
 public:
  PausingStore(std::unique_ptr<ObjectStore> store, std::string pause)
      : store_(std::move(store)), pause_(std::move(pause)) {}

  const std::string& name() const override { return store_->name(); }
  std::vector<detail::StoredObject> list() override { return store_->list(); }
  void get(const std::string& name, const detail::ByteSink& sink) override { store_->get(name, sink); }
  void put(const std::string& name, const std::function<void(const detail::ByteSink&)>& content) override {
    if (name == std::exchange(pause_, name == pause_ ? "" : pause_)) {
      std::cout << "putting " << name << std::endl;
      std::string line;
      std::getline(std::cin, line);
    }
    store_->put(name, content);
  }
  void remove(const std::string& name) override { store_->remove(name); }
  void remove_folder(const std::string& folder) override { store_->remove_folder(folder); }

 private:
  const std::unique_ptr<ObjectStore> store_;
  std::string pause_;
};

PausingStore open_store(const Options& options) {
  data::StorageOptions storage;
  storage.retry.deadline = std::chrono::milliseconds{options.deadline_ms};
  storage.retry.first_wait = std::chrono::milliseconds{100};
  storage.retry.longest_wait = std::chrono::milliseconds{1000};
  return {data::detail::open_object_store(data::detail::parse_location(options.location), storage), options.pause};
}

void save(const Options& options) {
  std::vector<std::string> run_ids;
  std::istringstream list{options.runs};
  for (std::string id; std::getline(list, id, ',');) run_ids.push_back(id);
  auto store = open_store(options);
  CheckpointWriter writer{options.root, run_ids, {.last = options.keep}};
  detail::CheckpointUploader uploader{store, options.root, run_ids, {.last = options.keep}};
  for (const auto step : options.steps) {
    const auto begun = writer.begin(step);
    std::vector<CheckpointPart> parts;
    for (const auto& [name, bytes] : {std::pair{"model.bin", options.bytes}, {"loader.json", std::size_t{0}}}) {
      parts.push_back({name, [&, name = std::string{name}, bytes = bytes](CheckpointFileWriter& file) {
                         file.write(checkpoint_bytes(step, name, bytes));
                       }});
    }
    writer.commit({.step = step, .files = write_checkpoint_files(options.root, begun, std::move(parts))});
    uploader.start(step);
    uploader.finish();
    try {
      uploader.report(0);
      std::cout << "saved " << step << std::endl;
    } catch (const EnvironmentError& error) {
      std::cout << "failed " << step << ": " << error.what() << std::endl;
    }
  }
  uploader.wait();
}

void fetch(const Options& options) {
  auto store = open_store(options);
  std::optional<CheckpointWriter> writer;
  const auto found = detail::fetch_newest_checkpoint(store, options.root, [&]() -> CheckpointWriter& {
    return writer.emplace(options.root, std::vector<std::string>{"fetching"});
  });
  for (const auto& problem : found.passed_over) log_warning(problem);
  std::int64_t step = -1;
  if (found.checkpoint) {
    step = found.checkpoint->manifest().step;
    for (const auto& file : found.checkpoint->manifest().files) {
      if (found.checkpoint->read(file.name) != checkpoint_bytes(step, file.name, file.bytes))
        throw EnvironmentError(text("'", file.name, "' has other bytes than were written."));
    }
  }
  std::cout << "newest " << step << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Writes checkpoints to an object store and fetches them."};
  Options options;
  app.require_subcommand(1);
  app.add_option("--deadline-ms", options.deadline_ms, "RetryOptions::deadline");
  for (const auto* name : {"save", "fetch"}) {
    auto* command = app.add_subcommand(name)->fallthrough();
    command->add_option("location", options.location)->required();
    command->add_option("root", options.root)->required();
  }
  auto* saving = app.get_subcommand("save");
  saving->add_option("runs", options.runs, "separated by commas")->required();
  saving->add_option("steps", options.steps)->required();
  saving->add_option("--bytes", options.bytes, "of model.bin");
  saving->add_option("--keep", options.keep);
  saving->add_option("--pause", options.pause);
  CLI11_PARSE(app, argc, argv);
  return test::run_program([&] { saving->parsed() ? save(options) : fetch(options); }, log_error);
}
