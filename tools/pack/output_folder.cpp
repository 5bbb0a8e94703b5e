#include <tools/pack/output_folder.hpp>

#include <system_error>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/disk_file.hpp>

namespace libtrain::pack {

namespace {

constexpr const char* kStaging = ".packing";

}  // namespace

OutputFolder::OutputFolder(std::filesystem::path path, NotEmpty policy)
    : path_(std::move(path)), is_new_(!std::filesystem::exists(path_)) {
  // Before it is looked into: from now on no other process adds to it.
  staging_.emplace(path_ / kStaging);
  if (policy == NotEmpty::refuse) require_empty();
}

OutputFolder::~OutputFolder() {
  staging_.reset();
  std::error_code not_empty;
  if (is_new_) std::filesystem::remove(path_, not_empty);
}

std::string OutputFolder::add(std::string name) {
  names_.push_back(std::move(name));
  return staged(names_.size() - 1);
}

void OutputFolder::publish(const std::function<bool(const std::string&)>& is_obsolete) {
  remove_obsolete(is_obsolete);
  for (std::size_t file = 0; file < names_.size(); ++file) {
    const auto name = path_ / names_[file];
    std::error_code error;
    std::filesystem::rename(staged(file), name, error);
    if (error) data::detail::throw_disk_error("write", name, error.value());
  }
  names_.clear();
}

std::string OutputFolder::staged(std::size_t file) const {
  return (staging_->path() / std::to_string(file)).string();
}

void OutputFolder::require_empty() const {
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    const auto name = entry.path().filename().string();
    if (name == kStaging) continue;
    throw UsageError(text("The output folder '", path_.string(), "' is not empty: it holds '", name,
                          "'. Choose another folder, or write to this one with --force."));
  }
}

void OutputFolder::remove_obsolete(const std::function<bool(const std::string&)>& is_obsolete) const {
  std::vector<std::filesystem::path> obsolete;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    if (is_obsolete(entry.path().filename().string())) obsolete.push_back(entry.path());
  }
  for (const auto& file : obsolete) std::filesystem::remove(file);
}

}  // namespace libtrain::pack
