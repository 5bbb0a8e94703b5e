#include <libtrain/data/storage/staging_copy.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/cache_entry.hpp>
#include <libtrain/data/storage/download.hpp>
#include <libtrain/data/storage/relative_path.hpp>

namespace libtrain::data::detail {

namespace {

namespace fs = std::filesystem;

// Leads nowhere.
constexpr const char* kUnreadable = "/nonexistent";

void move_to_place(const fs::path& partial, const fs::path& place) {
  if (std::rename(partial.c_str(), place.c_str()) == 0) return;
  if (errno == ENOENT) {
    make_folder(place.parent_path());
    if (std::rename(partial.c_str(), place.c_str()) == 0) return;
  }
  throw_disk_error("make the file", place, errno);
}

}  // namespace

std::vector<StagingTask> list_tasks(const Storage& from, const std::string& folder) {
  const std::string prefix = folder.empty() ? "" : folder + '/';
  std::vector<StagingTask> tasks;
  bool has_file = false;
  for (const auto& file : from.list(folder)) {
    const auto path = std::string_view(file.path).substr(file.path.starts_with(prefix) ? prefix.size() : 0);
    const auto without_slash = path.substr(0, path.size() - (path.ends_with('/') ? 1 : 0));
    if (!file.path.starts_with(prefix) || !leads_below(without_slash)) {
      throw EnvironmentError(text("'", describe(from, folder), "' lists the path '", file.path,
                                  "', which cannot be a file below a folder: rename it, or stage another folder."));
    }
    tasks.push_back({.remote = file, .path = std::string(without_slash)});
    has_file = has_file || file.kind == FileKind::file;
  }
  if (!has_file) throw EnvironmentError(text("There is no file to stage below '", describe(from, folder), "'."));
  return tasks;
}

StagingCopy::StagingCopy(const Storage& from, const StagingArea& area, const DiskFile& journal,
                         const StagingOptions& options, const StagingProgress& done)
    : from_(from), area_(area), journal_(journal), options_(options), journal_bytes_(journal.size()), progress_(done) {
  progress_.copier = getpid();
}

void StagingCopy::run(const std::vector<StagingTask>& tasks) {
  make_folder(area_.partial());
  std::atomic<std::size_t> next = 0;
  std::stop_source stop;
  std::exception_ptr failure;
  const auto work = [&](int worker) {
    try {
      while (!stop.stop_requested()) {
        const std::size_t index = next++;
        if (index >= tasks.size()) return;
        copy(tasks[index], worker, stop.get_token());
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure) failure = std::current_exception();
      stop.request_stop();
    }
  };
  add_progress(0, 0);
  {
    std::vector<std::jthread> helpers;
    try {
      for (int worker = 1; worker < options_.threads; ++worker) helpers.emplace_back(work, worker);
    } catch (const std::system_error&) {  // the system refuses threads: those that run will do
    }
    work(0);
  }
  std::error_code ignored;
  fs::remove_all(area_.partial(), ignored);
  if (failure) std::rethrow_exception(failure);
}

void StagingCopy::copy(const StagingTask& task, int worker, const std::stop_token& stop) {
  if (task.remote.kind == FileKind::empty_folder) {
    make_folder(area_.files() / task.path);
    note(manifest_line(task.path, {.version = task.remote.version}));
    return add_progress(1, 0);
  }
  const auto partial_path = area_.partial() / std::to_string(worker);
  if (task.remote.kind == FileKind::unreadable) {
    if (symlink(kUnreadable, partial_path.c_str()) != 0) throw_disk_error("make the link", partial_path, errno);
    move_to_place(partial_path, area_.files() / task.path);
    note(manifest_line(task.path, {.version = task.remote.version}));
    return add_progress(1, 0);
  }
  const auto partial = open_to_write(partial_path, O_TRUNC);
  const auto remote = open_unchanged(from_, task.remote.path, cache_key(from_.identity(), task.remote));
  const auto result = download(
      *remote, partial,
      {.block_bytes = options_.block_bytes, .progress = [this](std::uint64_t bytes) { add_progress(0, bytes); }}, stop);
  if (result.stopped) return;
  if (result.disk_error != 0) throw_disk_error("write", partial_path, result.disk_error);
  move_to_place(partial_path, area_.files() / task.path);
  note(manifest_line(task.path, {.size = task.remote.size, .version = task.remote.version, .hash = result.content}));
  add_progress(1, 0);
}

void StagingCopy::note(const std::string& journal_line) {
  const std::lock_guard lock(mutex_);
  if (const int error = journal_.write(journal_bytes_, journal_line); error != 0) {
    throw_disk_error("write", area_.journal(), error);
  }
  journal_bytes_ += journal_line.size();
}

void StagingCopy::add_progress(std::uint64_t files, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  progress_.files_done += files;
  progress_.bytes_done += bytes;
  area_.publish(progress_);
  if (options_.progress) options_.progress(progress_);
}

}  // namespace libtrain::data::detail
