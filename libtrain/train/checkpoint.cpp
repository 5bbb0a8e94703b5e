#include <libtrain/train/checkpoint.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <iomanip>
#include <stop_token>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/background_writer.hpp>
#include <libtrain/checkpoint/checkpoint_file_writer.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/checkpoint/checkpoint_writer.hpp>
#include <libtrain/checkpoint/detail/checkpoint_uploader.hpp>
#include <libtrain/checkpoint/detail/rank_entries.hpp>
#include <libtrain/checkpoint/detail/steps_to_remove.hpp>
#include <libtrain/checkpoint/detail/stored_checkpoints.hpp>
#include <libtrain/checkpoint/weights.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/data/storage/detail/arrow_object_store.hpp>
#include <libtrain/data/storage/detail/location.hpp>
#include <libtrain/train/context.hpp>
#include <libtrain/train/detail/checkpoint_parts.hpp>
#include <libtrain/train/detail/number_bytes.hpp>
#include <libtrain/train/detail/run_id.hpp>
#include <libtrain/train/detail/work_on_root.hpp>
#include <libtrain/train/gather_loader_state.hpp>

namespace libtrain {

namespace {

using optim::NamedTensors;

constexpr const char* kLoaderFile = "loader.json";
constexpr const char* kRandomName = "random";
constexpr const char* kSuffix = ".safetensors";

// "optimizer.safetensors", and "optimizer.00002-of-00004.safetensors" of rank 1's share.
std::string file_name(const std::string& part) {
  return part + kSuffix;
}

std::string file_name(const std::string& part, int rank, int world_size) {
  detail::OutputText name;
  name << part << std::setfill('0') << '.' << std::setw(5) << rank + 1 << "-of-" << std::setw(5) << world_size
       << kSuffix;
  return name.str();
}

std::string part_of_file(const std::string& name) {
  return name.substr(0, name.find('.'));
}

// From one file, or from those of the ranks that have written it.
NamedTensors read_part(const CheckpointFolder& folder, const std::string& name) {
  NamedTensors named;
  bool is_there = false;
  for (const auto& file : folder.manifest().files) {
    if (file.name == kLoaderFile || part_of_file(file.name) != name) continue;
    is_there = true;
    for (auto& [key, tensor] : read_tensors(folder.file(file.name).string()))
      named.emplace_back(key, std::move(tensor));
  }
  if (is_there) return named;
  throw UsageError(text("The checkpoint '", folder.path().string(), "' has no part '", name,
                        "'. Add the same parts as the program that wrote it."));
}

std::unique_ptr<detail::ObjectStore> open_store(const std::string& location, std::stop_token stop) {
  const auto parsed = data::detail::parse_location(location);
  if (parsed.kind == data::detail::StorageKind::local) {
    throw UsageError(text("CheckpointOptions::store is '", parsed.name,
                          "', a local path. Set a location in an object store, or make the path the root."));
  }
  return data::detail::open_object_store(parsed, {.stop = std::move(stop)});
}

bool is_part_name(const std::string& name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  return !name.empty() && name.size() < 100 && name.find_first_not_of(kAllowed) == std::string::npos &&
         name != kRandomName;
}

}  // namespace

class Checkpoint::State {
 public:
  State(Communicator& communicator, std::filesystem::path root, CheckpointOptions options)
      : communicator_(communicator), root_(std::filesystem::absolute(root)), options_(std::move(options)) {
    if (options_.failures_allowed < 0) {
      throw UsageError(
          text("CheckpointOptions::failures_allowed is ", options_.failures_allowed, "; it must be 0 or more."));
    }
    if (options_.run_id.empty()) options_.run_id = detail::agree_on_run_id(communicator);
    if (options_.store.empty()) return;
    detail::run_together(communicator, "Opening the store of checkpoints", [&] {
      if (communicator.rank() == 0) store_ = open_store(options_.store, stop_.get_token());
    });
  }

  ~State() {
    stop_.request_stop();
    if (std::uncaught_exceptions() > 0) stop_collecting_.request_stop();  // ranks may be lost
  }

  void add(const std::string& name, std::unique_ptr<Checkpointable> part) {
    if (!is_part_name(name)) {
      throw UsageError(text("A part of a checkpoint cannot be called '", name,
                            "': use 1 to 99 letters, digits, '_' and '-', and not 'random'."));
    }
    if (has_part(name)) throw UsageError(text("The checkpoint has a part '", name, "' already. Choose another name."));
    parts_.emplace_back(name, std::move(part));
  }

  void save(const CheckpointPosition& position);
  CheckpointPosition load(const std::filesystem::path& folder, const Accept& accept);
  std::optional<CheckpointPosition> load_latest(const Accept& accept);
  void wait();

  std::optional<Best> keep_best(std::int64_t step);
  void mark_best(std::int64_t step);

  const std::filesystem::path& root() const { return root_; }

 private:
  bool is_root() const { return communicator_.rank() == 0; }
  std::vector<std::string> run_ids() const;
  void open_writer();
  std::string begin_on_all_ranks(std::int64_t step);
  bool has_shards_to_write() const;
  bool all_see(const std::string& begun);
  std::vector<CheckpointPart> files_of_parts(bool are_shared);
  void start_writing(std::string begun, CheckpointManifest manifest, std::vector<CheckpointPart> files);
  void count_failure(const EnvironmentError& error);
  void run_on_root(const std::string& what, const std::function<void()>& work);
  void settle_last_write();
  NewestCheckpoint fetch_newest();
  CheckpointWriter& open_copier(std::optional<CheckpointWriter>& temporary);
  bool has_part(const std::string& name) const {
    return std::ranges::any_of(parts_, [&](const auto& part) { return part.first == name; });
  }
  void require_all_parts(const CheckpointManifest& manifest) const;
  CheckpointPosition load_parts(const std::optional<CheckpointFolder>& folder, const Accept& accept);

  Communicator& communicator_;
  const std::filesystem::path root_;
  CheckpointOptions options_;
  std::vector<std::pair<std::string, std::unique_ptr<Checkpointable>>> parts_;
  std::vector<std::string> former_runs_;  // that have led to the loaded checkpoint
  int failures_ = 0;                      // of writes, one after the other
  std::exception_ptr failure_;            // rank 0's, of the last save(), if it was a warning so far
  bool is_open_ = false;
  std::int64_t unsent_step_ = -1;     // of the loaded checkpoint, if the store does not have it, until the next one
  bool is_writing_ = false;           // or has written, and the outcome is not known yet
  bool is_root_shared_ = true;        // as far as is known
  std::stop_source stop_;             // ends the waits of the store's requests
  std::stop_source stop_collecting_;  // ends the wait for other ranks' files
  // Rank 0's, but for the background writer of all ranks. The background writer goes first: it uses the others, and
  // logs a failure that no call has reported.
  std::unique_ptr<detail::ObjectStore> store_;
  std::optional<CheckpointWriter> writer_;
  std::optional<detail::CheckpointUploader> uploader_;
  BackgroundWriter background_;
};

// In the first save(), so that a run which fails before it leaves nothing.
void Checkpoint::State::open_writer() {
  if (is_open_) return;
  detail::run_together(communicator_, "Opening the folder of checkpoints", [&] {
    if (communicator_.rank() != 0) return;
    writer_.emplace(root_, run_ids(), options_.retention);
    if (store_) uploader_.emplace(*store_, root_, run_ids(), options_.retention);
  });
  is_open_ = true;
}

// The work may wait for the files of a rank that is lost, which rank 0 notices meanwhile.
void Checkpoint::State::run_on_root(const std::string& what, const std::function<void()>& work) {
  detail::run_on_root(communicator_, {.what = what,
                                      .run = work,
                                      .while_waiting =
                                          [this] {
                                            if (!background_.is_running()) background_.wait();  // throws if it failed
                                          },
                                      .give_up =
                                          [this] {
                                            stop_.request_stop();
                                            stop_collecting_.request_stop();
                                          }});
}

void Checkpoint::State::settle_last_write() {
  if (!std::exchange(is_writing_, false)) return;
  try {
    background_.wait();
    failures_ = 0;
  } catch (const EnvironmentError& error) {
    if (!is_root()) throw;
    count_failure(error);
  }
}

// In a handler of the error, which goes on if there were too many.
void Checkpoint::State::count_failure(const EnvironmentError& error) {
  failure_ = std::current_exception();
  if (++failures_ > options_.failures_allowed) throw;
  log_warning(text("A checkpoint was not written, and the training goes on: ", error.what()));
}

// The folder of a checkpoint to which all ranks write; empty if rank 0 cannot make one.
std::string Checkpoint::State::begin_on_all_ranks(std::int64_t step) {
  std::string begun;
  run_on_root("Writing a checkpoint", [&] {
    settle_last_write();
    try {
      begun = writer_->begin(step);
    } catch (const EnvironmentError& error) {
      count_failure(error);
    }
  });
  if (!is_root()) settle_last_write();
  return communicator_.broadcast_bytes(begun, 0);
}

bool Checkpoint::State::has_shards_to_write() const {
  return communicator_.world_size() > 1 && is_root_shared_ &&
         std::ranges::any_of(parts_, [](const auto& part) { return part.second->is_sharded(); });
}

// Whether all ranks see the new folder that rank 0 has made; if not, it is abandoned, and rank 0 writes from then on.
bool Checkpoint::State::all_see(const std::string& begun) {
  std::error_code error;
  const auto sees = communicator_.all_gather_bytes(std::filesystem::exists(root_ / begun, error) ? "yes" : "");
  const auto blind = std::ranges::find(sees, "");
  is_root_shared_ = blind == sees.end();
  if (is_root_shared_ || !is_root()) return is_root_shared_;
  log_info(
      text("Rank ", blind - sees.begin(), " does not see the folder '", root_.string(),
           "': rank 0 writes the state of all ranks. In a folder that all hosts share, each would write its own."));
  writer_->abandon();
  return false;
}

// This rank's. Shared: with a share of each sharded part on each rank.
std::vector<CheckpointPart> Checkpoint::State::files_of_parts(bool are_shared) {
  std::vector<CheckpointPart> files;
  for (const auto& [name, part] : parts_) {
    if (are_shared && part->is_sharded()) {
      files.push_back(detail::file_of(file_name(name, communicator_.rank(), communicator_.world_size()),
                                      detail::copied_to_host(part->shard())));
    } else {
      const auto tensors = part->tensors();
      if (is_root()) files.push_back(detail::file_of(file_name(name), detail::copied_to_host(tensors)));
    }
  }
  return files;
}

// `begun` is empty if rank 0 alone writes.
void Checkpoint::State::start_writing(std::string begun, CheckpointManifest manifest,
                                      std::vector<CheckpointPart> files) {
  is_writing_ = true;
  failure_ = nullptr;
  if (!is_root()) {
    background_.start(
        [this, begun = std::move(begun), rank = communicator_.rank(), files = std::move(files)]() mutable {
          try {
            detail::leave_entries(root_, begun, rank, write_checkpoint_files(root_, begun, std::move(files)));
          } catch (const EnvironmentError& error) {
            if (!detail::leave_failure(root_, begun, rank, error.what())) throw;
          }
        });
    return;
  }
  background_.start([this, begun = std::move(begun), manifest = std::move(manifest), files = std::move(files),
                     stop = stop_collecting_.get_token()]() mutable {
    try {
      const auto step = manifest.step;
      const bool is_alone = begun.empty();
      if (is_alone) begun = writer_->begin(step);
      manifest.files = write_checkpoint_files(root_, begun, std::move(files));
      if (!is_alone) {
        const auto others = detail::collect_entries(root_, begun, manifest.world_size, stop);
        manifest.files.insert(manifest.files.end(), others.begin(), others.end());
      }
      writer_->commit(std::move(manifest));
      if (uploader_) uploader_->start(step);
    } catch (...) {
      writer_->abandon();
      throw;
    }
  });
}

void Checkpoint::State::save(const CheckpointPosition& position) {
  const CallPurpose purpose{communicator_, "a checkpoint"};
  unsent_step_ = -1;
  open_writer();
  std::string loader;
  if (position.loader) loader = gather_loader_state(*position.loader, communicator_).to_text();
  std::string begun;
  if (has_shards_to_write()) {
    begun = begin_on_all_ranks(position.step);
    if (begun.empty()) return;
    if (!all_see(begun)) begun.clear();
  }
  const bool are_shared = !begun.empty();
  // A write that takes longer than the ranks wait for each other must not look like a lost rank.
  if (!are_shared) run_on_root("Writing a checkpoint", [&] { settle_last_write(); });
  auto files = files_of_parts(are_shared);
  auto random = detail::gather_generators(communicator_);
  if (is_root()) {
    files.push_back(detail::file_of(file_name(kRandomName), std::move(random)));
    if (!loader.empty()) {
      files.push_back({.name = kLoaderFile, .write = [loader](CheckpointFileWriter& file) { file.write(loader); }});
    }
    if (uploader_) uploader_->report(options_.failures_allowed);
  } else if (!are_shared) {
    return;
  }
  start_writing(std::move(begun),
                {.step = position.step,
                 .epoch = position.epoch,
                 .world_size = communicator_.world_size(),
                 .metrics = position.metrics,
                 .configuration = options_.configuration},
                std::move(files));
  if (options_.in_background) return;
  if (are_shared) run_on_root("Writing a checkpoint", [&] { settle_last_write(); });
  settle_last_write();
  if (!uploader_) return;
  uploader_->finish();
  uploader_->report(options_.failures_allowed);
}

void Checkpoint::State::wait() {
  is_writing_ = false;
  const auto unsent = std::exchange(unsent_step_, -1);
  if (unsent >= 0) open_writer();
  run_on_root("Writing a checkpoint", [&] {
    background_.wait();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (!uploader_) return;
    if (unsent >= 0) uploader_->start(unsent);
    uploader_->wait();
  });
  background_.wait();  // of the other ranks
}

// Of root and store. Neither is written meanwhile.
NewestCheckpoint Checkpoint::State::fetch_newest() {
  settle_last_write();
  if (uploader_) uploader_->finish();
  std::optional<CheckpointWriter> temporary;
  return detail::fetch_newest_checkpoint(*store_, root_, [&]() -> CheckpointWriter& { return open_copier(temporary); });
}

std::optional<Checkpoint::Best> Checkpoint::State::keep_best(std::int64_t step) {
  const CallPurpose purpose{communicator_, "looking for the best checkpoint"};
  detail::NamedNumbers found;
  run_on_root("Looking for the best checkpoint", [&] {
    settle_last_write();
    if (uploader_) uploader_->finish();
    std::optional<CheckpointWriter> temporary;
    auto manifests = list_manifests(root_);
    const auto find = [&](std::int64_t wanted) {
      return std::ranges::find(manifests, wanted, &CheckpointManifest::step);
    };
    // Whether the root has that checkpoint, from the store if need be.
    const auto fetch = [&](std::int64_t wanted) {
      if (find(wanted) != manifests.end()) return true;
      if (wanted < 0 || !store_) return false;
      try {
        if (detail::fetch_checkpoint(*store_, wanted, open_copier(temporary))) manifests = list_manifests(root_);
      } catch (const CheckpointDamagedError& error) {
        log_warning(text("A checkpoint is passed over: ", error.what()));
      }
      return find(wanted) != manifests.end();
    };
    const auto& metric = options_.retention.metric;
    if (fetch(step)) {
      const auto best = find(step);
      found.emplace_back("", static_cast<double>(step));
      const auto value = best->metrics.find(metric);
      if (value != best->metrics.end()) {
        found.emplace_back(metric, value->second);
      } else {
        open_copier(temporary).mark_best(step);  // it is not kept for its metric
      }
      return;
    }
    auto all = manifests;
    if (store_) {
      for (auto& manifest : detail::list_stored_manifests(*store_))
        if (find(manifest.step) == manifests.end()) all.push_back(std::move(manifest));
      std::ranges::sort(all, {}, &CheckpointManifest::step);
    }
    auto kept = detail::best_kept(all, run_ids(), options_.retention);
    while (kept && !fetch(kept->step)) {
      std::erase_if(all, [&](const auto& manifest) { return manifest.step == kept->step; });
      kept = detail::best_kept(all, run_ids(), options_.retention);
    }
    if (kept) found = {{"", static_cast<double>(kept->step)}, {metric, *kept->metric}};
  });
  if (!is_root()) settle_last_write();
  found = detail::named_numbers_of(communicator_.broadcast_bytes(detail::to_bytes(found), 0));
  if (found.empty()) return std::nullopt;
  Best result{.step = static_cast<std::int64_t>(found.front().second)};
  if (found.size() > 1) result.value = found.back().second;
  return result;
}

std::vector<std::string> Checkpoint::State::run_ids() const {
  auto ids = former_runs_;
  if (ids.empty() || ids.back() != options_.run_id) ids.push_back(options_.run_id);
  return ids;
}

// Writes what is copied from the store: a writer of its own before the first save().
CheckpointWriter& Checkpoint::State::open_copier(std::optional<CheckpointWriter>& temporary) {
  if (writer_) return *writer_;
  return temporary ? *temporary : temporary.emplace(root_, std::vector{options_.run_id});
}

void Checkpoint::State::mark_best(std::int64_t step) {
  open_writer();
  run_on_root("Marking the best checkpoint", [&] {
    settle_last_write();
    writer_->mark_best(step);
  });
}

std::optional<CheckpointPosition> Checkpoint::State::load_latest(const Accept& accept) {
  const CallPurpose purpose{communicator_, "loading a checkpoint"};
  std::optional<CheckpointFolder> folder;
  bool is_stored = false;  // also in the store
  run_on_root("Looking for a checkpoint", [&] {
    auto found = store_ ? fetch_newest() : find_newest_checkpoint(root_);
    for (const auto& problem : found.passed_over) log_warning(text("A checkpoint is passed over: ", problem));
    folder = std::move(found.checkpoint);
    is_stored = folder && store_ && detail::list_stored_folders(*store_).has_manifest(folder->manifest().step);
    if (!folder && !found.passed_over.empty()) {
      throw EnvironmentError(text("None of the checkpoints in '", root_.string(),
                                  "' can be used, and a run that starts anew "
                                  "there would hide that. Repair them, or move that folder away. The newest one: ",
                                  found.passed_over.front()));
    }
  });
  const auto outcome = communicator_.broadcast_bytes(folder ? (is_stored ? "stored" : "found") : "", 0);
  if (outcome.empty()) return std::nullopt;
  auto position = load_parts(folder, accept);
  // Such as that of a run which has finished when the store did not answer.
  if (outcome == "found" && !options_.store.empty()) unsent_step_ = position.step;
  return position;
}

CheckpointPosition Checkpoint::State::load(const std::filesystem::path& path, const Accept& accept) {
  const CallPurpose purpose{communicator_, "loading a checkpoint"};
  std::optional<CheckpointFolder> folder;
  run_on_root("Opening a checkpoint", [&] {
    folder.emplace(path);
    folder->verify();
  });
  return load_parts(folder, accept);
}

// Otherwise a program that has forgotten one would go on with a fresh optimizer or average, unnoticed.
void Checkpoint::State::require_all_parts(const CheckpointManifest& manifest) const {
  for (const auto& file : manifest.files) {
    const auto name = part_of_file(file.name);
    if (file.name == kLoaderFile || name == kRandomName || has_part(name)) continue;
    throw UsageError(text("The checkpoint of step ", manifest.step, " has a part '", name,
                          "', which this program has not added. Add the same parts as the program that wrote it, or "
                          "load the weights alone with load_weights()."),
                     ErrorScope::all_ranks);
  }
}

// `folder` is rank 0's.
CheckpointPosition Checkpoint::State::load_parts(const std::optional<CheckpointFolder>& folder, const Accept& accept) {
  std::string manifest_text;
  std::string loader;
  detail::run_together(communicator_, "Reading a checkpoint", [&] {
    if (!folder) return;
    manifest_text = to_text(folder->manifest());
    if (folder->find(kLoaderFile) != nullptr) loader = folder->read(kLoaderFile);
  });
  const auto manifest =
      parse_checkpoint_manifest(communicator_.broadcast_bytes(manifest_text, 0), "the manifest of rank 0");
  loader = communicator_.broadcast_bytes(loader, 0);
  detail::run_together(communicator_, "Reading a checkpoint", [&] {
    if (accept) accept(manifest);
  });
  require_all_parts(manifest);
  const auto tensors_of = [&](const std::string& name) {  // on rank 0
    NamedTensors named;
    run_on_root("Reading a checkpoint", [&] { named = read_part(*folder, name); });
    return named;
  };
  for (const auto& [name, part] : parts_) {
    auto tensors = tensors_of(name);
    if (!part->is_sharded()) tensors = detail::broadcast_named(std::move(tensors), communicator_);
    detail::run_together(communicator_, "Loading a checkpoint", [&] {
      try {
        part->load(tensors);
      } catch (const UsageError& error) {
        throw UsageError(
            text("Part '", name, "' of the checkpoint of step ", manifest.step, " does not fit: ", error.what()));
      }
    });
  }
  detail::restore_generators(detail::broadcast_named(tensors_of(kRandomName), communicator_), manifest.step,
                             manifest.world_size, communicator_);
  former_runs_ = manifest.run_ids;
  CheckpointPosition position{.step = manifest.step, .epoch = manifest.epoch, .metrics = manifest.metrics};
  if (!loader.empty()) position.loader = data::LoaderState::from_text(loader);
  return position;
}

Checkpoint::Checkpoint(Communicator& communicator, std::filesystem::path root, CheckpointOptions options)
    : state_(std::make_unique<State>(communicator, std::move(root), std::move(options))) {}

Checkpoint::Checkpoint(Context& context, CheckpointOptions options)
    : Checkpoint(context.communicator(), context.output_directory() / "checkpoints", [&] {
        if (options.run_id.empty()) options.run_id = context.run_id();
        return std::move(options);
      }()) {}

Checkpoint::~Checkpoint() = default;

void Checkpoint::add(const std::string& name, torch::nn::Module& module) {
  state_->add(name, detail::part_of(module));
}

void Checkpoint::add(const std::string& name, torch::optim::Optimizer& optimizer, const torch::nn::Module& module) {
  state_->add(name, detail::part_of(optimizer, module));
}

void Checkpoint::add(const std::string& name, ShardedOptimizer& optimizer) {
  state_->add(name, detail::part_of(optimizer));
}

void Checkpoint::add(const std::string& name, optim::MovingAverage& average) {
  state_->add(name, detail::part_of(average));
}

void Checkpoint::add(const std::string& name, optim::LossScaler& scaler) {
  state_->add(name, detail::part_of(scaler));
}

void Checkpoint::add(const std::string& name, std::unique_ptr<Checkpointable> part) {
  state_->add(name, std::move(part));
}

void Checkpoint::save(const CheckpointPosition& position) {
  state_->save(position);
}

std::optional<CheckpointPosition> Checkpoint::load_latest(const Accept& accept) {
  return state_->load_latest(accept);
}

CheckpointPosition Checkpoint::load(const std::filesystem::path& folder, const Accept& accept) {
  return state_->load(folder, accept);
}

std::optional<Checkpoint::Best> Checkpoint::keep_best(std::int64_t step) {
  return state_->keep_best(step);
}

void Checkpoint::wait() {
  state_->wait();
}

void Checkpoint::mark_best(std::int64_t step) {
  state_->mark_best(step);
}

const std::filesystem::path& Checkpoint::root() const {
  return state_->root();
}

}  // namespace libtrain
