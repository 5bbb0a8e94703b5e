#include <tools/pack/output_folder.hpp>

#include <algorithm>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/output_file.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/sources/shard_files.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>
#include <libtrain/data/storage/disk_file.hpp>

namespace libtrain::pack {

namespace {

namespace fs = std::filesystem;

const fs::path kPlan{data::detail::kUnfinishedSet};
const fs::path kStaging = kPlan.parent_path();

bool is_present(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

}  // namespace

void rename_file(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) data::detail::throw_disk_error("write", to, error.value());
}

OutputFolder::OutputFolder(fs::path path, NotEmpty policy, Rename rename)
    : path_(std::move(path)), rename_(std::move(rename)), is_new_(!fs::exists(path_)) {
  // Before the folder is read: from now on no other process adds files to it.
  staging_.emplace(path_ / kStaging);
  if (is_present(plan())) {
    staging_->keep(true);  // if the rollback fails, the previous files are in there
    roll_back(read_plan());
    staging_->keep(false);
    log_warning(text("A process was killed while it replaced files in '", path_.string(),
                     "'. The previous files have been restored."));
  }
  staging_->clear();
  if (policy == NotEmpty::refuse) require_empty();
}

OutputFolder::~OutputFolder() {
  // Files that could not be restored stay for the next process.
  if (staging_ && is_present(plan())) staging_->keep(true);
  staging_.reset();
  std::error_code not_empty;
  if (is_new_) fs::remove(path_, not_empty);
}

std::string OutputFolder::add(std::string name) {
  names_.push_back(std::move(name));
  return staged(names_.size() - 1).string();
}

void OutputFolder::publish(const std::function<bool(const std::string&)>& is_obsolete) {
  const auto names = names_of(is_obsolete);
  try {
    write_plan(names);
    exchange(names);
  } catch (...) {
    roll_back(names);
    throw;
  }
  end_plan();
  names_.clear();
}

fs::path OutputFolder::staged(std::size_t file) const {
  return staging_->path() / std::to_string(file);
}

fs::path OutputFolder::set_aside(std::size_t file) const {
  return staging_->path() / text("old-", file);
}

fs::path OutputFolder::plan() const {
  return path_ / kPlan;
}

void OutputFolder::require_empty() const {
  for (const auto& entry : fs::directory_iterator(path_)) {
    const auto name = entry.path().filename().string();
    if (name == kStaging) continue;
    throw UsageError(text("The output folder '", path_.string(), "' is not empty: it contains '", name,
                          "'. Choose another folder, or add --force to write to this one."));
  }
}

OutputFolder::Names OutputFolder::names_of(const std::function<bool(const std::string&)>& is_obsolete) const {
  Names names{.added = names_};
  for (const auto& entry : fs::directory_iterator(path_)) {
    auto name = entry.path().filename().string();
    const bool is_replaced = is_obsolete(name) || std::find(names_.begin(), names_.end(), name) != names_.end();
    if (is_replaced && !entry.is_directory()) names.old.push_back(std::move(name));
  }
  return names;
}

// Names may contain any byte except zero, so zero ends each entry.
void OutputFolder::write_plan(const Names& names) const {
  libtrain::detail::OutputFile file(plan().string());
  for (const auto& name : names.old) file.write(text('-', name, '\0'));
  for (const auto& name : names.added) file.write(text('+', name, '\0'));
  file.commit();
  data::detail::sync_folder(staging_->path());
}

OutputFolder::Names OutputFolder::read_plan() const {
  const auto content =
      data::read_all(*data::detail::open_local_file(plan().string()), std::numeric_limits<std::uint64_t>::max());
  Names names;
  for (std::string_view rest = content; !rest.empty();) {
    const auto line = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    (line.starts_with('-') ? names.old : names.added).emplace_back(line.substr(1));
  }
  return names;
}

void OutputFolder::exchange(const Names& names) const {
  for (std::size_t i = 0; i < names.old.size(); ++i) rename_(path_ / names.old[i], set_aside(i));
  for (std::size_t i = 0; i < names.added.size(); ++i) rename_(staged(i), path_ / names.added[i]);
  data::detail::sync_folder(path_);
}

// Undoes exchange() from any point: a file that does not exist under one name has been renamed to the other.
void OutputFolder::roll_back(const Names& names) const {
  for (std::size_t i = 0; i < names.added.size(); ++i) {
    if (!is_present(staged(i)) && is_present(path_ / names.added[i])) rename_(path_ / names.added[i], staged(i));
  }
  for (std::size_t i = 0; i < names.old.size(); ++i) {
    if (is_present(set_aside(i))) rename_(set_aside(i), path_ / names.old[i]);
  }
  data::detail::sync_folder(path_);
  end_plan();
}

void OutputFolder::end_plan() const {
  std::error_code error;
  fs::remove(plan(), error);
  if (error) data::detail::throw_disk_error("remove", plan(), error.value());
}

}  // namespace libtrain::pack
