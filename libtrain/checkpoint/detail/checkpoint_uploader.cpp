#include <libtrain/checkpoint/detail/checkpoint_uploader.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include <libtrain/base/detail/crc32c.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/best_mark.hpp>
#include <libtrain/checkpoint/detail/entry_reader.hpp>
#include <libtrain/checkpoint/detail/folder.hpp>
#include <libtrain/checkpoint/detail/run_mark.hpp>
#include <libtrain/checkpoint/detail/steps_to_remove.hpp>

namespace libtrain::detail {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kUploadBytes = std::size_t{10} << 20;  // of the stores' clients, which then copy nothing

// A complete checkpoint whose files are open: it can be read while the retention removes it.
struct OpenCheckpoint {
  StoredManifest manifest = {};
  std::vector<EntryReader> files = {};
};

// std::nullopt if it was removed.
std::optional<OpenCheckpoint> open_checkpoint(const fs::path& path) try {
  const Folder folder{path};
  OpenCheckpoint checkpoint;
  const auto manifest = read_small_file(folder, kManifestName, kLongestManifest);
  if (!manifest) throw_checkpoint_damage(path / kManifestName, "is missing");
  checkpoint.manifest = {.bytes = *manifest,
                         .manifest = parse_checkpoint_manifest(*manifest, (path / kManifestName).string())};
  for (const auto& entry : checkpoint.manifest.manifest.files) checkpoint.files.emplace_back(folder, entry);
  return checkpoint;
} catch (const EnvironmentError&) {
  if (std::error_code error; !fs::exists(path, error) && !error) return std::nullopt;
  throw;
}

void send_file(const EntryReader& file, const CheckpointFile& entry, const ByteSink& sink) {
  std::string piece;
  std::uint32_t crc = 0;
  for (std::uint64_t offset = 0; offset < entry.bytes; offset += piece.size()) {
    piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kUploadBytes, entry.bytes - offset)));
    file.read(offset, piece.data(), piece.size());
    crc = extend_crc32c(crc, piece);
    sink(piece);
  }
  if (crc != entry.crc32c) throw_checkpoint_damage(file.path(), "is damaged: its bytes have changed");
}

}  // namespace

CheckpointUploader::CheckpointUploader(ObjectStore& store, fs::path root, std::vector<std::string> run_ids,
                                       CheckpointRetention retention)
    : store_(store), root_(std::move(root)), run_ids_(std::move(run_ids)), retention_(std::move(retention)) {}

CheckpointUploader::~CheckpointUploader() {
  try {
    thread_.wait();
    if (error_) std::rethrow_exception(error_);
  } catch (const std::exception& error) {
    log_error(text("A checkpoint was not uploaded. ", error.what()));
  }
}

void CheckpointUploader::start(std::int64_t step) {
  newest_ = step;
  is_behind_ = true;
  if (thread_.is_running()) return;
  thread_.start([this] {
    try {
      synchronize();
      failures_ = 0;
      error_ = nullptr;
    } catch (...) {
      ++failures_;
      error_ = std::current_exception();
    }
  });
}

void CheckpointUploader::report(int failures_allowed) {
  if (thread_.is_running() || !error_) return;
  try {
    std::rethrow_exception(std::exchange(error_, nullptr));
  } catch (const EnvironmentError& error) {
    if (failures_ > failures_allowed) throw;
    log_warning(text("A checkpoint was not uploaded, and the training goes on: ", error.what()));
  }
}

void CheckpointUploader::wait() {
  thread_.wait();
  error_ = nullptr;
  if (is_behind_) synchronize();
  if (unread_.empty()) return;
  // Those that retention has removed meanwhile are no longer listed.
  const auto statuses = list_checkpoints(root_);
  const auto is_readable_now = [&](const auto& status) {
    return status.problem.empty() && unread_.contains(status.step);
  };
  if (std::ranges::any_of(statuses, is_readable_now)) synchronize();
  for (const auto& status : statuses) {
    const auto unread = unread_.find(status.step);
    if (unread == unread_.end()) continue;
    log_warning(text("A checkpoint is not in the store '", store_.name(), "'. ", unread->second));
  }
}

void CheckpointUploader::synchronize() {
  is_behind_ = false;
  try {
    const auto newest = newest_.load();  // a later one makes is_behind_ true
    const auto folders = list_stored_folders(store_);
    claim(folders);
    read_new_manifests(folders);
    std::map<std::int64_t, CheckpointManifest> checkpoints;
    std::vector<std::int64_t> local;
    std::map<std::int64_t, std::string> problems;
    for (const auto& status : list_checkpoints(root_)) {
      if (!status.problem.empty()) problems.emplace(status.step, status.problem);
      const auto checkpoint = status.is_complete() ? open_checkpoint(status.folder) : std::nullopt;
      if (!checkpoint || !is_own(checkpoint->manifest.manifest)) continue;
      local.push_back(status.step);
      checkpoints.emplace(status.step, checkpoint->manifest.manifest);
    }
    for (const auto& [step, stored] : complete_) checkpoints.emplace(step, stored.manifest);
    std::vector<CheckpointManifest> manifests;
    for (auto& [step, manifest] : checkpoints) manifests.push_back(std::move(manifest));
    auto removed = to_remove(manifests);
    std::erase(removed, newest_.load());
    std::erase_if(local, [&](auto step) { return std::ranges::find(removed, step) != removed.end(); });
    remove_leftovers(folders);
    upload_missing(local, folders);
    unread_.clear();
    for (const auto& [step, problem] : problems) {
      if (complete_.contains(step)) continue;
      if (step == newest) throw EnvironmentError(problem);
      unread_.emplace(step, problem);
    }
    for (const auto step : removed) {
      if (complete_.contains(step)) remove_checkpoint(step, folders);
    }
  } catch (...) {
    is_behind_ = true;
    throw;
  }
}

// Nothing, if it is not known which one is marked.
std::vector<std::int64_t> CheckpointUploader::to_remove(const std::vector<CheckpointManifest>& manifests) const {
  try {
    return steps_to_remove(manifests, run_ids_, retention_, read_best_mark(Folder{root_}));
  } catch (const EnvironmentError& error) {
    log_warning(text("Old checkpoints in the store remain. ", error.what()));
    return {};
  }
}

bool CheckpointUploader::is_own(const CheckpointManifest& manifest) const {
  return std::ranges::find(run_ids_, manifest.run_ids.back()) != run_ids_.end();
}

// Before the first upload; a later run of the same location does so too, and ends the uploads of this one.
void CheckpointUploader::claim(const StoredFolders& folders) {
  if (!mark_.empty() && folders.has_writer) return require_claim();
  if (folders.has_writer) {
    std::string former;
    store_.get(kStoreWriterName, [&](std::string_view bytes) { former += bytes; });
    const auto run = run_of_mark(former);
    if (!run.empty() && std::ranges::find(run_ids_, run) == run_ids_.end()) {
      log_warning(
          text(describe_run_mark(former), " has written checkpoints to '", store_.name(),
               "'. If it is still running, its next upload fails: end one of the two, or set another location."));
    }
  }
  const auto mark = run_mark(run_ids_.back());
  store_.put(kStoreWriterName, [&](const ByteSink& sink) { sink(mark); });
  mark_ = mark;
}

void CheckpointUploader::require_claim() {
  std::string mark;
  store_.get(kStoreWriterName, [&](std::string_view bytes) { mark += bytes; });
  if (mark == mark_) return;
  throw EnvironmentError(text(describe_run_mark(mark), " has begun to write checkpoints to '", store_.name(),
                              "', where this run did. End one of the two runs, or set another location."));
}

// Damaged checkpoints, and those of a newer libtrain, are neither counted nor removed.
void CheckpointUploader::read_new_manifests(const StoredFolders& folders) {
  std::erase_if(complete_, [&](const auto& item) { return !folders.has_manifest(item.first); });
  for (const auto& [step, files] : folders.steps) {
    if (!folders.has_manifest(step) || complete_.contains(step)) continue;
    try {
      complete_.emplace(step, read_stored_manifest(store_, folders, step));
    } catch (const CheckpointDamagedError&) {
    } catch (const CheckpointVersionError&) {
    }
  }
}

void CheckpointUploader::remove_leftovers(const StoredFolders& folders) {
  for (const auto& [step, files] : folders.steps) {
    if (folders.has_manifest(step)) continue;
    const auto name = checkpoint_folder_name(step);
    try {
      store_.remove_folder(name);
    } catch (const EnvironmentError& error) {
      warn_once(name, text("An unfinished upload remains. ", error.what()));
    }
  }
}

void CheckpointUploader::upload_missing(const std::vector<std::int64_t>& steps, const StoredFolders& folders) {
  const auto newest = newest_.load();
  if (std::ranges::find(steps, newest) != steps.end()) upload(newest, folders);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (*step == newest || refused_.contains(*step)) continue;
    try {
      upload(*step, folders);
    } catch (const CheckpointDamagedError& error) {
      warn_once(checkpoint_folder_name(*step), text("A checkpoint is not uploaded: ", error.what()));
    }
  }
}

void CheckpointUploader::upload(std::int64_t step, const StoredFolders& folders) {
  const auto checkpoint = open_checkpoint(root_ / checkpoint_folder_name(step));
  if (!checkpoint) return;
  const auto& [bytes, manifest] = checkpoint->manifest;
  if (const auto stored = complete_.find(step); stored != complete_.end() && stored->second.bytes == bytes) return;
  make_room_for(step, folders);
  for (std::size_t index = 0; index < manifest.files.size(); ++index) {
    const auto& entry = manifest.files[index];
    store_.put(stored_name(step, entry.name),
               [&](const ByteSink& sink) { send_file(checkpoint->files[index], entry, sink); });
  }
  const auto sent = list_stored_folders(store_);
  for (const auto& entry : manifest.files) {
    const auto folder = sent.steps.find(step);
    if (folder != sent.steps.end()) {
      const auto file = folder->second.find(entry.name);
      if (file != folder->second.end() && file->second == entry.bytes) continue;
    }
    require_claim();
    throw EnvironmentError(text("File '", store_.name(), '/', stored_name(step, entry.name), "' does not have the ",
                                entry.bytes, " bytes that were sent. Check that no other program writes there."));
  }
  require_claim();
  store_.put(stored_name(step, kManifestName), [&bytes = bytes](const ByteSink& sink) { sink(bytes); });
  complete_.insert_or_assign(step, checkpoint->manifest);
}

void CheckpointUploader::make_room_for(std::int64_t step, const StoredFolders& folders) {
  if (!folders.has_manifest(step)) return;
  std::string damage;
  try {
    verify_stored_checkpoint(store_, read_stored_manifest(store_, folders, step).manifest);
  } catch (const CheckpointDamagedError& error) {
    damage = error.what();
  } catch (const CheckpointVersionError&) {
    refused_.insert(step);
    throw;
  }
  const auto name = checkpoint_folder_name(step);
  if (damage.empty()) {
    refused_.insert(step);
    throw EnvironmentError(text("'", store_.name(), "' has another checkpoint '", name,
                                "' already, which is undamaged. Continue from it, or set another location."));
  }
  require_claim();
  log_warning(text("A new checkpoint replaces a damaged one. ", damage));
  store_.remove(stored_name(step, kManifestName));
  store_.remove_folder(name);
  complete_.erase(step);
}

void CheckpointUploader::remove_checkpoint(std::int64_t step, const StoredFolders& folders) try {
  const auto name = checkpoint_folder_name(step);
  const auto& entries = complete_.at(step).manifest.files;
  for (const auto& [file, bytes] : folders.steps.at(step)) {
    if (file == kManifestName || std::ranges::find(entries, file, &CheckpointFile::name) != entries.end()) continue;
    return warn_once(name, text("The checkpoint '", store_.name(), '/', name, "' is kept: the file '", file,
                                "' was added to it. Remove the checkpoint by hand."));
  }
  require_claim();
  store_.remove(stored_name(step, kManifestName));
  complete_.erase(step);
  store_.remove_folder(name);
} catch (const EnvironmentError& error) {
  warn_once("retention", text("Old checkpoints remain in the store. ", error.what()));
}

// The same object would otherwise be named after every checkpoint.
void CheckpointUploader::warn_once(const std::string& about, const std::string& message) {
  if (warned_about_.insert(about).second) log_warning(message);
}

}  // namespace libtrain::detail
