#include <libtrain/data/storage/staging_area.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/file_lock.hpp>

namespace libtrain::data::detail {

namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = "staging.lock";
constexpr std::chrono::milliseconds kLook{100};  // between two looks at what the copier does

using Record = std::array<std::uint64_t, 6>;

bool is_there(const fs::path& path) {
  return access(path.c_str(), F_OK) == 0;
}

// A file system's own folder at its root does not count.
bool holds_nothing(const fs::path& folder) {
  std::error_code error;
  for (auto file = fs::directory_iterator(folder, error); !error && file != fs::directory_iterator();
       file.increment(error)) {
    if (file->path().filename() != "lost+found") return false;
  }
  if (error) throw_disk_error("list the folder", folder, error.value());
  return true;
}

// Zeros where nothing was published yet.
Record read_record(const DiskFile& file) {
  Record record{};
  const auto got = file.read(0, std::as_writable_bytes(std::span{record}));
  return got == sizeof(record) ? record : Record{};
}

std::string standstill(const StagingProgress& at, std::chrono::milliseconds timeout) {
  if (at.files_total == 0) return text("has been listing them for ", timeout.count(), " ms");
  return text("has copied nothing for ", timeout.count(), " ms; it stopped at ", at.files_done, " of ", at.files_total,
              " files");
}

}  // namespace

StagingArea::StagingArea(const fs::path& root) : root_(fs::absolute(root)) {
  make_folder(root_);
  // The lock file is made first of all: who finds other files and no lock looks again, for another process may start.
  const auto lock = root_ / kLock;
  if (!is_there(lock) && !holds_nothing(root_) && !is_there(lock)) {
    throw UsageError(text("The folder '", root_.string(),
                          "' holds files that staging did not put there: name a new or empty one to stage to."));
  }
  open_to_write(lock);
  progress_ = open_to_write(root_ / "progress");
}

DiskFile StagingArea::wait_for_turn(std::chrono::milliseconds stall_timeout,
                                    const std::function<void(const StagingProgress&)>& on_progress) const {
  auto lock = open_to_write(root_ / kLock);
  std::optional<StagingProgress> seen;
  auto deadline = Deadline::after(stall_timeout);
  while (!lock_within(lock, LockMode::exclusive, Deadline::after(std::min(kLook, stall_timeout)))) {
    const auto now = published();
    if (seen != now) {
      seen = now;
      deadline = Deadline::after(stall_timeout);
      if (on_progress) on_progress(now);
    } else if (deadline.expired()) {
      throw EnvironmentError(text("Process ", now.copier, " of this node, which copies files to '", root_.string(),
                                  "' for all, ", standstill(now, stall_timeout),
                                  ". See what it waits for, end it, and start again."));
    }
  }
  return lock;
}

void StagingArea::publish(const StagingProgress& progress, std::uint64_t source) const noexcept {
  const Record record{progress.files_done,
                      progress.files_total,
                      progress.bytes_done,
                      progress.bytes_total,
                      static_cast<std::uint64_t>(getpid()),
                      source};
  // What others are shown is not worth an error.
  static_cast<void>(progress_.write(0, std::as_bytes(std::span{record})));
}

StagingProgress StagingArea::published() const {
  const auto record = read_record(progress_);
  return {.files_done = record[0],
          .files_total = record[1],
          .bytes_done = record[2],
          .bytes_total = record[3],
          .copier = static_cast<pid_t>(record[4])};
}

std::uint64_t StagingArea::published_source() const {
  return read_record(progress_)[5];
}

}  // namespace libtrain::data::detail
