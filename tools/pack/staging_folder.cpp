#include <tools/pack/staging_folder.hpp>

#include <system_error>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/disk_file.hpp>

namespace libtrain::pack {

namespace {

namespace detail = data::detail;

constexpr const char* kLock = "lock";

// Network file systems without locks are accepted: two processes with one output folder are a rare mistake.
bool lock_if_possible(const detail::DiskFile& file) {
  try {
    return detail::try_lock(file, detail::LockMode::exclusive);
  } catch (const detail::DiskError&) {
    return true;
  }
}

}  // namespace

StagingFolder::StagingFolder(std::filesystem::path path) : path_(std::move(path)) {
  detail::make_folder(path_);
  const auto lock_path = path_ / kLock;
  lock_ = detail::open_to_write(lock_path);
  // The process that had the lock until now may have removed the file.
  if (!lock_if_possible(lock_) || !lock_.is_at(lock_path)) {
    throw EnvironmentError(
        text("The folder '", path_.string(),
             "' is in use by another libtrain-pack. Wait until it has finished, or write to another folder."));
  }
}

void StagingFolder::clear() const {
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    if (entry.path().filename() != kLock) std::filesystem::remove_all(entry.path());
  }
}

StagingFolder::~StagingFolder() {
  if (is_kept_) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace libtrain::pack
