#include <libtrain/checkpoint/checkpoint_writer.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <optional>
#include <random>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <libtrain/base/build_info.hpp>
#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/detail/file_lock.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/checkpoint/detail/best_mark.hpp>
#include <libtrain/checkpoint/detail/folder.hpp>
#include <libtrain/checkpoint/detail/run_mark.hpp>
#include <libtrain/checkpoint/detail/steps_to_remove.hpp>

namespace libtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = "lock";
constexpr int kMostSetAside = 1000;
constexpr std::uint64_t kLongestLock = 4096;
constexpr std::string_view kPartial = "partial";
constexpr std::string_view kRemoved = "removed";
constexpr std::string_view kDamaged = "damaged";

fs::path set_aside_name(const fs::path& root, int number) {
  auto name = root;
  name += text('.', number);
  return name;
}

// Whether there is something of this name, a symbolic link to nothing included.
bool is_taken(const fs::path& name) {
  std::error_code error;
  return fs::exists(fs::symlink_status(name, error));
}

std::string with_random_suffix(const std::string& name, std::string_view kind) {
  std::random_device random;
  std::array<std::uint8_t, 8> token{};
  for (auto& byte : token) byte = static_cast<std::uint8_t>(random());
  return text(name, ".", detail::hexadecimal(token), ".", kind);
}

// Whether this is a name that with_random_suffix() makes.
bool has_random_suffix(std::string_view name, std::string_view kind) {
  constexpr std::size_t kDigits = 16;
  const auto end = name.find('.');
  if (end == std::string_view::npos || !parse_checkpoint_folder_name(name.substr(0, end))) return false;
  const auto rest = name.substr(end + 1);
  return rest.size() == kDigits + 1 + kind.size() && rest.ends_with(kind) && rest[kDigits] == '.' &&
         rest.find_first_not_of("0123456789abcdef") == kDigits;
}

// Like the names in it, those of new folders must survive a power failure.
fs::path create_root(const fs::path& root) {
  if (root.empty()) throw UsageError("The folder for the checkpoints is an empty path. Set a folder.");
  std::error_code error;
  std::vector<fs::path> parents;  // of the folders that do not exist
  for (auto folder = fs::absolute(root); !fs::exists(folder, error); folder = folder.parent_path()) {
    if (error) break;
    parents.push_back(folder.parent_path());
  }
  fs::create_directories(root, error);
  if (error) detail::throw_checkpoint_error("create the folder", root, error.value());
  for (const auto& parent : parents) detail::Folder{parent}.sync();
  return root;
}

// The run that holds the lock, from the lock's content.
std::string holder_of(const detail::Folder& root) try {
  return detail::describe_run_mark(detail::read_small_file(root, kLockName, kLongestLock).value_or(""));
} catch (const EnvironmentError&) {
  return "Another run";
}

// What is wrong with the checkpoint in this folder; empty if it is undamaged.
std::string damage_of(const fs::path& folder) {
  try {
    CheckpointFolder{folder}.verify();
    return {};
  } catch (const CheckpointDamagedError& error) {
    return error.what();
  }
}

}  // namespace

class CheckpointWriter::State {
 public:
  State(const std::filesystem::path& root, std::vector<std::string> run_ids, CheckpointRetention retention);
  ~State() { abandon(); }

  std::string begin(std::int64_t step);
  fs::path commit(CheckpointManifest manifest);
  fs::path commit_copy(const std::string& bytes);
  void abandon() noexcept;
  void mark_best(std::int64_t step);
  const fs::path& root() const { return root_.path(); }

 private:
  void take_lock();
  void write_holder() const;
  void remove_leftovers();
  void make_room_for(const std::string& name) const;
  fs::path complete(const CheckpointManifest& manifest, std::string bytes);
  void require_files(const detail::Folder& begun, const CheckpointManifest& manifest) const;
  void apply_retention();
  void remove_checkpoint(std::int64_t step);
  void warn_once(const std::string& about, const std::string& message);

  std::vector<std::string> run_ids_;
  CheckpointRetention retention_;
  detail::Folder root_;
  detail::FileDescriptor lock_ = {};
  bool is_locked_ = false;  // false if the file system has no locks
  std::string begun_ = {};  // the name of the folder; empty if no checkpoint is begun
  std::int64_t step_ = 0;   // of the begun one
  std::set<std::string> warned_about_ = {};
};

CheckpointWriter::State::State(const std::filesystem::path& root, std::vector<std::string> run_ids,
                               CheckpointRetention retention)
    : run_ids_(std::move(run_ids)), retention_(std::move(retention)), root_(create_root(root)) {
  if (run_ids_.empty()) throw UsageError("CheckpointWriter is given no run id. Pass the id of this run.");
  if (retention_.last && *retention_.last < 1) {
    throw UsageError(text("The number of checkpoints to keep is ", *retention_.last, "; it must be at least 1."));
  }
  take_lock();
  remove_leftovers();
  write_holder();
}

std::string CheckpointWriter::State::begin(std::int64_t step) {
  if (!begun_.empty()) {
    throw UsageError(text("The checkpoint of step ", step_,
                          " is still being written. Commit or abandon it before the one ", "of step ", step,
                          " begins."));
  }
  if (step < 0) throw UsageError(text("A checkpoint cannot be of step ", step, "; steps are 0 or more."));
  remove_leftovers();
  const auto name = checkpoint_folder_name(step);
  make_room_for(name);
  const auto begun = with_random_suffix(name, kPartial);
  root_.make_folder(begun);
  begun_ = begun;
  step_ = step;
  return begun_;
}

fs::path CheckpointWriter::State::commit(CheckpointManifest manifest) {
  manifest.libtrain_version = build_info().version;
  manifest.torch_version = build_info().torch;
  manifest.time = std::time(nullptr);
  manifest.run_ids = run_ids_;
  auto folder = complete(manifest, {});
  apply_retention();
  return folder;
}

// With these bytes of the manifest; empty: with those that to_text() makes.
fs::path CheckpointWriter::State::complete(const CheckpointManifest& manifest, std::string bytes) {
  if (begun_.empty()) throw UsageError("No checkpoint was begun. Call begin() before commit().");
  try {
    if (manifest.step != step_) {
      throw UsageError(text("The manifest is of step ", manifest.step, ", but the checkpoint of step ", step_,
                            " was begun. Commit what was begun."));
    }
    if (bytes.empty()) bytes = to_text(manifest);
    const auto begun = root_.inside(begun_);
    require_files(begun, manifest);
    detail::write_synced(begun, detail::kManifestName, bytes);
    begun.sync();
    root_.rename(begun_, checkpoint_folder_name(step_));
  } catch (...) {
    abandon();
    throw;
  }
  begun_.clear();
  root_.sync();
  return root_.path() / checkpoint_folder_name(step_);
}

fs::path CheckpointWriter::State::commit_copy(const std::string& bytes) {
  CheckpointManifest manifest;
  try {
    manifest = parse_checkpoint_manifest(bytes, "the manifest of a copy");
  } catch (...) {
    abandon();
    throw;
  }
  return complete(manifest, bytes);
}

void CheckpointWriter::State::abandon() noexcept {
  if (begun_.empty()) return;
  root_.remove_folder(begun_);
  begun_.clear();
}

void CheckpointWriter::State::mark_best(std::int64_t step) {
  const auto folder = root_.path() / checkpoint_folder_name(step);
  const auto checkpoints = list_checkpoints(root_.path());
  const bool is_complete = std::any_of(checkpoints.begin(), checkpoints.end(), [&](const auto& checkpoint) {
    return checkpoint.step == step && checkpoint.is_complete();
  });
  if (!is_complete) {
    throw UsageError(text("'", folder.string(),
                          "' is not a complete checkpoint and cannot be marked as the best. "
                          "Mark it after it has been committed, and before the retention has removed it."));
  }
  detail::write_best_mark(root_, step);
}

void CheckpointWriter::State::take_lock() {
  const auto path = root_.path() / kLockName;
  lock_ = root_.open_file(kLockName, O_RDWR | O_CREAT | O_NONBLOCK);
  if (!lock_.is_open()) detail::throw_checkpoint_error("write checkpoints, which needs the file", path, errno);
  const auto result = detail::try_lock_file(lock_.get());
  if (result == detail::LockResult::refused) {
    const auto holder = holder_of(root_);
    throw EnvironmentError(text(holder, " is writing checkpoints to '", root_.path().string(), "'. ",
                                holder.starts_with("This") ? "Use its CheckpointWriter, or another folder."
                                                           : "Wait until that run has ended, or set another folder."));
  }
  is_locked_ = result == detail::LockResult::taken;
  if (!is_locked_) {
    log_warning(text("The file system cannot lock '", path.string(), "' (", std::system_category().message(errno),
                     "). A second run that writes checkpoints there at the same time is not detected, and what killed "
                     "runs left is not removed."));
  } else if (::ftruncate(lock_.get(), 0) != 0) {
    detail::throw_checkpoint_error("write to the file", path, errno);
  }
}

// Only for the message to a run that is refused. After the leftovers are removed, which may fill the disk.
void CheckpointWriter::State::write_holder() const {
  if (!is_locked_) return;
  const auto line = detail::run_mark(run_ids_.back());
  if (detail::write_all(lock_.get(), line) < line.size()) {
    detail::throw_checkpoint_error("write to the file", root_.path() / kLockName, errno);
  }
}

void CheckpointWriter::State::remove_leftovers() {
  if (!is_locked_) return;
  for (const auto& name : root_.names()) {
    if (!has_random_suffix(name, kPartial) && !has_random_suffix(name, kRemoved)) continue;
    const int error = root_.remove_folder(name);
    if (error == 0) continue;
    warn_once(name, text("Cannot remove the unfinished checkpoint '", (root_.path() / name).string(),
                         "': ", std::system_category().message(error), ". Remove it by hand."));
  }
}

void CheckpointWriter::State::make_room_for(const std::string& name) const {
  const auto status = root_.status(name);
  if (!status) return;
  const auto path = root_.path() / name;
  if (!S_ISDIR(status->st_mode)) detail::throw_checkpoint_error("create the checkpoint", path, EEXIST);
  const auto damage = damage_of(path);
  if (damage.empty()) {
    throw EnvironmentError(text("The checkpoint '", path.string(), "' exists already and is undamaged. Continue from ",
                                "it, or set another folder."));
  }
  const auto aside = with_random_suffix(name, kDamaged);
  root_.rename(name, aside);
  log_warning(
      text("A new checkpoint replaces a damaged one, which is now '", (root_.path() / aside).string(), "'. ", damage));
}

// Other ranks may have written the files on other hosts: opening one makes a network file system ask its server.
void CheckpointWriter::State::require_files(const detail::Folder& begun, const CheckpointManifest& manifest) const {
  std::set<std::string> unnamed;
  for (auto& name : begun.names()) unnamed.insert(std::move(name));
  for (const auto& entry : manifest.files) {
    unnamed.erase(entry.name);
    const auto path = begun.path() / entry.name;
    const auto file = begun.open_file(entry.name, O_RDONLY | O_NONBLOCK);
    if (!file.is_open() && errno == ENOENT) {
      throw EnvironmentError(text("The checkpoint file '", path.string(),
                                  "', which a rank has written, is not there. All ranks must see the same folder: set "
                                  "one that the nodes share."));
    }
    struct stat status{};
    if (!file.is_open() || ::fstat(file.get(), &status) != 0) detail::throw_checkpoint_error("open", path, errno);
    if (std::cmp_not_equal(status.st_size, entry.bytes)) {
      throw EnvironmentError(text("The checkpoint file '", path.string(), "' has ", status.st_size, " bytes; the rank ",
                                  "that wrote it has written ", entry.bytes, ". Check the disk or the mount."));
    }
  }
  if (unnamed.empty()) return;
  throw UsageError(text("The manifest of the checkpoint of step ", step_, " does not name the file '", *unnamed.begin(),
                        "', which was written. Pass the entries of all ranks to commit()."));
}

void CheckpointWriter::State::apply_retention() try {
  const auto manifests = list_manifests(root_.path());
  for (const auto step : detail::steps_to_remove(manifests, run_ids_, retention_, detail::read_best_mark(root_))) {
    if (step != step_) remove_checkpoint(step);
  }
} catch (const EnvironmentError& error) {
  warn_once("retention", text("Old checkpoints remain. ", error.what()));
}

void CheckpointWriter::State::remove_checkpoint(std::int64_t step) {
  const auto name = checkpoint_folder_name(step);
  const CheckpointFolder checkpoint{root_.path() / name};
  for (const auto& file : root_.inside(name).names()) {
    if (file == detail::kManifestName || checkpoint.find(file) != nullptr) continue;
    return warn_once(name, text("The checkpoint '", checkpoint.path().string(), "' is kept: the file '", file,
                                "' was added to it. Remove the checkpoint by hand."));
  }
  const auto removed = with_random_suffix(name, kRemoved);
  root_.rename(name, removed);
  if (const int error = root_.remove_folder(removed); error != 0) {
    detail::throw_checkpoint_error("remove", root_.path() / removed, error);
  }
}

// The same file or disk would otherwise be named after every checkpoint.
void CheckpointWriter::State::warn_once(const std::string& about, const std::string& message) {
  if (warned_about_.insert(about).second) log_warning(message);
}

CheckpointWriter::CheckpointWriter(const std::filesystem::path& root, std::vector<std::string> run_ids,
                                   CheckpointRetention retention)
    : state_(std::make_unique<State>(root, std::move(run_ids), std::move(retention))) {}

CheckpointWriter::~CheckpointWriter() = default;

std::string CheckpointWriter::begin(std::int64_t step) {
  return state_->begin(step);
}

std::filesystem::path CheckpointWriter::commit(CheckpointManifest manifest) {
  return state_->commit(std::move(manifest));
}

std::filesystem::path CheckpointWriter::commit_copy(const std::string& manifest) {
  return state_->commit_copy(manifest);
}

void CheckpointWriter::abandon() noexcept {
  state_->abandon();
}

void CheckpointWriter::mark_best(std::int64_t step) {
  state_->mark_best(step);
}

const std::filesystem::path& CheckpointWriter::root() const {
  return state_->root();
}

std::filesystem::path latest_set_aside(const std::filesystem::path& root, const std::filesystem::path& name) {
  for (int number = kMostSetAside; number > 0; --number) {
    const auto folder = set_aside_name(root, number);
    auto path = name.empty() ? folder : folder / name;
    if (is_taken(path)) return path;
  }
  return {};
}

std::optional<std::filesystem::path> set_aside_checkpoints(const std::filesystem::path& root) {
  if (list_checkpoints(root).empty()) return std::nullopt;
  const CheckpointWriter writer{root, {"set aside"}};  // takes the lock
  int number = kMostSetAside;
  while (number > 0 && !is_taken(set_aside_name(root, number))) --number;
  do ++number;
  while (is_taken(set_aside_name(root, number)));
  auto name = set_aside_name(root, number);
  std::error_code error;
  fs::rename(root, name, error);
  if (!error) return name;
  throw EnvironmentError(text("Cannot rename '", root.string(), "' to '", name.string(), "': ", error.message(),
                              ". Choose another folder for this run."));
}

}  // namespace libtrain
