#include <libtrain/data/storage/staging.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>
#include <libtrain/data/storage/detail/staging_manifest.hpp>

namespace libtrain::data {

namespace detail {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLongestManifest = std::uint64_t{4} << 30;
constexpr std::chrono::milliseconds kPollInterval{100};  // for the progress of the copier
constexpr const char* kBrokenLinkTarget = "/nonexistent";

/// A file to stage, or an empty folder.
struct StagingTask {
  FileInfo remote = {};
  std::string path = {};  // below the staged folder
};

void require_usable(const StagingOptions& options) {
  if (options.threads < 1) throw UsageError(text("Staging has ", options.threads, " threads; it needs 1 or more."));
  if (options.block_bytes == 0) throw UsageError("block_bytes of staging is 0; it must be at least 1.");
  if (options.stall_timeout.count() <= 0) {
    throw UsageError(text("stall_timeout of staging is ", options.stall_timeout.count(), " ms; it must be positive."));
  }
  if (options.list_timeout.count() <= 0) {
    throw UsageError(text("list_timeout of staging is ", options.list_timeout.count(), " ms; it must be positive."));
  }
  if (options.sync_timeout.count() <= 0) {
    throw UsageError(text("sync_timeout of staging is ", options.sync_timeout.count(), " ms; it must be positive."));
  }
}

bool path_exists(const fs::path& path) {
  return access(path.c_str(), F_OK) == 0;
}

// Ignores the folder that a file system keeps at its root.
bool is_empty_folder(const fs::path& folder) {
  std::error_code error;
  for (auto file = fs::directory_iterator(folder, error); !error && file != fs::directory_iterator();
       file.increment(error)) {
    if (file->path().filename() != "lost+found") return false;
  }
  if (error) throw_disk_error("list the folder", folder, error.value());
  return true;
}

// Empty, so that everything is copied, if the file is missing or too long to be one of ours.
std::string read_or_empty(const fs::path& path) {
  try {
    return read_all(*detail::open_local_file(path.string()), kLongestManifest);
  } catch (const EnvironmentError&) {
    return {};
  }
}

void move_to(const fs::path& from, const fs::path& place) {
  if (std::rename(from.c_str(), place.c_str()) != 0) throw_disk_error("create the file", place, errno);
}

// The same clock in all processes of the machine. Unlike the time of day, it is never set back.
std::int64_t nanoseconds_since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return nanoseconds_of(now);
}

/// Content of the file `progress`. Times are in nanoseconds since the machine was started.
struct Published {
  StagingProgress progress = {};
  bool is_syncing = false;     // all files are copied, and are being written to the disk
  std::uint64_t source = 0;    // see Staging::local_source_; 0 until the copy is complete
  std::int64_t listed = 0;     // when the listing of the files began
  std::int64_t completed = 0;  // when the copy was complete

  bool operator==(const Published&) const = default;
};

std::string describe_stall(const Published& at, std::chrono::milliseconds timeout) {
  if (at.is_syncing) return text("has been writing them to the disk for ", timeout.count(), " ms");
  const auto& progress = at.progress;
  if (progress.files_total == 0) return text("has been listing them for ", timeout.count(), " ms");
  return text("has copied nothing for ", timeout.count(), " ms; it stopped at ", progress.files_done, " of ",
              progress.files_total, " files");
}

/// One call of stage().
class Staging {
 public:
  Staging(const Storage& from, const std::string& folder, const fs::path& to, const StagingOptions& options)
      : from_(from),
        folder_(folder),
        options_(options),
        name_(describe(from, folder)),
        source_(folder.empty() ? from.identity() : text(from.identity(), '/', folder)),
        local_source_(content_hash(text(from.local_identity(), '\n', libtrain::detail::boot_id())).low),
        root_(fs::absolute(to)) {
    make_folder(root_);
    // The lock file is created first. Checked twice, because another process may create it between the checks.
    if (!path_exists(lock_path_) && !is_empty_folder(root_) && !path_exists(lock_path_)) {
      throw UsageError(text("The folder '", root_.string(),
                            "' contains files that staging did not create. Stage to a new or empty folder."));
    }
    open_to_write(lock_path_);
    published_ = open_to_write(root_ / "progress");
  }

  StagingResult run() {
    const Stopwatch stopwatch;
    const std::int64_t began = nanoseconds_since_boot();
    const auto turn = wait_for_turn();
    StagingResult result{.folder = files_};
    if (const auto totals = copied_for(began)) {
      result.files = totals->files;
      result.bytes = totals->bytes;
    } else {
      bring_up_to_date(result);
    }
    auto in_use = std::make_shared<DiskFile>(open_to_write(users_path_));
    // Only a copier locks it exclusively, and this process has the turn to copy.
    if (!try_lock(*in_use, LockMode::shared)) throw_disk_error("lock", users_path_, EWOULDBLOCK);
    result.in_use = std::move(in_use);
    result.seconds = stopwatch.seconds();
    return result;
  }

 private:
  // Waits until no other process copies. This process is the copier while the result is open.
  DiskFile wait_for_turn() const {
    auto lock = open_to_write(lock_path_);
    std::optional<Published> seen;
    auto timeout = options_.stall_timeout;
    auto deadline = Deadline::after(timeout);
    while (!lock_within(lock, LockMode::exclusive, Deadline::after(std::min(kPollInterval, options_.stall_timeout)))) {
      const auto now = published();
      if (seen != now) {
        seen = now;
        timeout = timeout_of(now);
        deadline = Deadline::after(timeout);
        if (options_.progress) options_.progress(now.progress);
      } else if (deadline.expired()) {
        throw EnvironmentError(text("Process ", now.progress.copier, " of this node, which copies files to '",
                                    root_.string(), "' for all, ", describe_stall(now, timeout),
                                    ". Check what it waits for, end it, and start again."));
      }
    }
    return lock;
  }

  std::chrono::milliseconds timeout_of(const Published& copier) const {
    if (copier.is_syncing) return options_.sync_timeout;
    return copier.progress.files_total == 0 ? options_.list_timeout : options_.stall_timeout;
  }

  // The totals if another process has completed the copy since this one began, from a listing for this start (see
  // StagingOptions::start_spread) of files of this machine: nodes that share the folder may have different files under
  // the same path.
  std::optional<StagedTotals> copied_for(std::int64_t began) const {
    const auto copy = published();
    if (copy.source != local_source_) return std::nullopt;
    const std::chrono::duration<double, std::nano> listed_before{static_cast<double>(began - copy.listed)};
    if (listed_before > options_.start_spread) return std::nullopt;
    // Containers may have different offsets of the clock.
    if (copy.completed < began || copy.completed > nanoseconds_since_boot()) return std::nullopt;
    return read_totals(read_or_empty(manifest_), source_);
  }

  void bring_up_to_date(StagingResult& result) {
    state_.listed = nanoseconds_since_boot();
    publish();  // replaces the progress of an earlier copier while the files are listed
    const auto tasks = list_tasks();
    auto record = read_or_empty(manifest_);
    const bool is_complete = read_totals(record, source_).has_value();
    if (!is_complete) record = read_or_empty(journal_);
    const auto known = read_files(record, source_);
    // After a power failure, files of a journal may have the right length without their content.
    const bool compares_hashes = !is_complete;

    std::vector<StagingTask> missing;
    std::string journal = manifest_head(source_);
    auto& progress = state_.progress;
    progress.files_total = tasks.size();
    for (const auto& task : tasks) progress.bytes_total += task.remote.size;
    for (const auto& task : tasks) {
      const auto found = known.find(task.path);
      if (found == known.end() || !is_staged(task, found->second, compares_hashes)) {
        missing.push_back(task);
        continue;
      }
      ++progress.files_done;
      progress.bytes_done += task.remote.size;
      publish();
      journal += manifest_line(found->first, found->second);
    }
    result.files = progress.files_total;
    result.bytes = progress.bytes_total;
    result.copied_files = missing.size();
    result.copied_bytes = progress.bytes_total - progress.bytes_done;
    if (!is_complete || !missing.empty() || known.size() != tasks.size()) replace(tasks, missing, journal);
    state_.is_syncing = false;
    state_.source = local_source_;
    state_.completed = nanoseconds_since_boot();
    publish();
  }

  // The files below the folder and its empty folders, each of which may be a class, in the order of their paths.
  std::vector<StagingTask> list_tasks() const {
    const std::string prefix = folder_.empty() ? "" : folder_ + '/';
    std::vector<StagingTask> tasks;
    bool has_file = false;
    for (const auto& file : from_.list(folder_)) {
      auto path = std::string_view(file.path).substr(file.path.starts_with(prefix) ? prefix.size() : 0);
      if (path.ends_with('/')) path.remove_suffix(1);
      if (!file.path.starts_with(prefix) || !leads_below(path)) {
        throw EnvironmentError(text("'", name_, "' lists the path '", file.path,
                                    "', which does not lie below it. Rename the file, or stage another folder."));
      }
      tasks.push_back({.remote = file, .path = std::string(path)});
      has_file = has_file || file.kind == FileKind::file;
    }
    if (!has_file) throw EnvironmentError(text("There is no file to stage below '", name_, "'. Check the path."));
    return tasks;
  }

  bool is_staged(const StagingTask& task, const StagedFile& staged, bool compares_hashes) const {
    if (staged.size != task.remote.size || staged.version != task.remote.version) return false;
    const auto path = files_ / task.path;
    std::error_code error;
    if (task.remote.kind == FileKind::empty_folder) return fs::is_directory(path, error);
    if (task.remote.kind == FileKind::unreadable) return fs::is_symlink(path, error);
    if (fs::file_size(path, error) != staged.size || error) return false;
    if (!compares_hashes) return true;
    const auto file = DiskFile::open(path, O_RDONLY);
    return file.is_open() && hash_of_beginning(file, staged.size) == staged.hash;
  }

  void replace(const std::vector<StagingTask>& tasks, const std::vector<StagingTask>& missing,
               const std::string& journal) {
    // Runs that read the files hold the lock.
    if (!try_lock(open_to_write(users_path_), LockMode::exclusive)) {
      throw EnvironmentError(text("'", name_, "' differs from the copy that was staged to '", root_.string(),
                                  "', and another run still reads that copy. Wait until that run ends, or stage to "
                                  "another folder."));
    }
    // The new journal exists before the manifest is removed, so that a kill in between loses no file.
    start_journal(journal);
    unlink(manifest_.c_str());
    sync_folder(root_);
    std::error_code ignored;
    fs::remove_all(partial_, ignored);
    make_folder(partial_);
    make_folder(files_);
    remove_unlisted_files(tasks);
    remove_outdated_files(missing);
    require_space(missing);
    copy_all(missing);
    finish({.files = tasks.size(), .bytes = state_.progress.bytes_total});
  }

  // The temporary name is always the same, so that killed processes leave one file at most; the lock makes it safe.
  void start_journal(const std::string& content) {
    const auto partial = root_ / "journal.partial";
    open_journal_ = open_to_write(partial, O_TRUNC);
    write_to_journal(content);
    move_to(partial, journal_);
  }

  void write_to_journal(std::string_view lines) {
    const int error = open_journal_.write(journal_bytes_, lines);
    if (error != 0) throw_disk_error("write", journal_, error);
    journal_bytes_ += lines.size();
  }

  // Files of an earlier version of the set would otherwise be read as a part of it.
  void remove_unlisted_files(const std::vector<StagingTask>& tasks) const {
    std::unordered_set<std::string> expected;
    for (const auto& task : tasks) {
      const bool is_folder = task.remote.kind == FileKind::empty_folder;
      expected.insert((files_ / task.path).string() + (is_folder ? "/" : ""));
    }
    std::vector<fs::path> folders;
    std::vector<fs::path> unlisted;
    std::error_code error;
    for (auto file = fs::recursive_directory_iterator(files_, error);
         !error && file != fs::recursive_directory_iterator(); file.increment(error)) {
      const bool is_folder = file->symlink_status(error).type() == fs::file_type::directory;
      if (expected.contains(file->path().string() + (is_folder ? "/" : ""))) continue;
      (is_folder ? folders : unlisted).push_back(file->path());
    }
    if (error) throw_disk_error("list the folder", files_, error.value());
    for (const auto& file : unlisted) {
      if (unlink(file.c_str()) != 0 && errno != ENOENT) throw_disk_error("remove the file", file, errno);
    }
    // Innermost first; rmdir() keeps folders that are not empty.
    for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
      if (rmdir(folder->c_str()) != 0 && errno != ENOENT && errno != ENOTEMPTY) {
        throw_disk_error("remove the folder", *folder, errno);
      }
    }
  }

  // Before the free space is checked, so that a disk with room for one version of the set can take the next one. The
  // journal does not list these files: a run that continues it copies them.
  void remove_outdated_files(const std::vector<StagingTask>& missing) const {
    for (const auto& task : missing) {
      if (task.remote.kind == FileKind::empty_folder) continue;
      const auto file = files_ / task.path;
      if (unlink(file.c_str()) != 0 && errno != ENOENT) throw_disk_error("remove the file", file, errno);
    }
  }

  void require_space(const std::vector<StagingTask>& missing) const {
    std::uint64_t needed = 0;
    for (const auto& task : missing) needed += disk_bytes(task.remote.size);
    const std::uint64_t available = available_bytes(root_);
    const std::uint64_t reserve = options_.free_space_reserve_bytes;
    if (needed == 0 || (needed <= available && available - needed >= reserve)) return;
    throw EnvironmentError(text("Staging '", name_, "' to '", root_.string(), "' needs ", needed,
                                " more bytes and must leave ", reserve, " bytes free, but the disk has ", available,
                                " free bytes. Free disk space, stage to another disk, or use --cache."));
  }

  void copy_all(const std::vector<StagingTask>& tasks) {
    add_progress(0, 0);
    std::exception_ptr failure;
    try {
      run_concurrently(tasks.size(), static_cast<std::size_t>(options_.threads),
                       [&](std::size_t index, const std::stop_token& stop) {
                         copy(tasks[index], partial_ / std::to_string(index), stop);
                       });
    } catch (...) {
      failure = std::current_exception();
    }
    std::error_code ignored;
    fs::remove_all(partial_, ignored);
    if (failure) std::rethrow_exception(failure);
  }

  void copy(const StagingTask& task, const fs::path& partial_path, const std::stop_token& stop) {
    const auto& remote = task.remote;
    const auto place = files_ / task.path;
    StagedFile staged{.size = remote.size, .version = remote.version};
    make_folder(remote.kind == FileKind::empty_folder ? place : place.parent_path());
    if (remote.kind == FileKind::unreadable) {
      if (symlink(kBrokenLinkTarget, partial_path.c_str()) != 0) {
        throw_disk_error("create the link", partial_path, errno);
      }
      move_to(partial_path, place);
    } else if (remote.kind == FileKind::file) {
      const auto partial = open_to_write(partial_path, O_TRUNC);
      const auto key = cache_key(from_.identity(), remote);
      const auto file = open_to_copy(from_, remote.path, key);
      const auto count = [this](std::uint64_t bytes) { add_progress(0, bytes); };
      const auto hash = download(*file, partial, {.block_bytes = options_.block_bytes, .progress = count}, stop);
      if (!hash) return;
      require_unchanged(from_, remote.path, key);
      staged.hash = *hash;
      move_to(partial_path, place);
    }
    {
      const std::lock_guard lock(mutex_);
      write_to_journal(manifest_line(task.path, staged));
    }
    add_progress(1, 0);
  }

  // The journal has been open since before the first file was written: the kernel reports write errors of the disk to
  // descriptors that were open when they occurred.
  void finish(const StagedTotals& totals) {
    write_to_journal(manifest_end(read_all(*detail::open_local_file(journal_.string()), kLongestManifest), totals));
    state_.is_syncing = true;
    publish();
    if (const int error = options_.sync(open_journal_); error != 0) throw_disk_error("write", journal_, error);
    move_to(journal_, manifest_);
    sync_folder(root_);
  }

  void add_progress(std::uint64_t files, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    state_.progress.files_done += files;
    state_.progress.bytes_done += bytes;
    publish();
    if (options_.progress) options_.progress(state_.progress);
  }

  using Record = std::array<std::uint64_t, 9>;

  // Publishes the state to waiting processes.
  void publish() const {
    const auto& progress = state_.progress;
    const Record record{progress.files_done,
                        progress.files_total,
                        progress.bytes_done,
                        progress.bytes_total,
                        static_cast<std::uint64_t>(progress.copier),
                        state_.source,
                        state_.is_syncing ? std::uint64_t{1} : std::uint64_t{0},
                        static_cast<std::uint64_t>(state_.listed),
                        static_cast<std::uint64_t>(state_.completed)};
    // Progress is not worth an error.
    static_cast<void>(published_.write(0, std::as_bytes(std::span{record})));
  }

  // Zeros if nothing has been published yet.
  Published published() const {
    Record record{};
    if (published_.read(0, std::as_writable_bytes(std::span{record})) != sizeof(record)) return {};
    return {.progress = {.files_done = record[0],
                         .files_total = record[1],
                         .bytes_done = record[2],
                         .bytes_total = record[3],
                         .copier = static_cast<pid_t>(record[4])},
            .is_syncing = record[6] != 0,
            .source = record[5],
            .listed = static_cast<std::int64_t>(record[7]),
            .completed = static_cast<std::int64_t>(record[8])};
  }

  const Storage& from_;
  const std::string& folder_;
  const StagingOptions& options_;
  const std::string name_;            // for messages
  const std::string source_;          // identifies the set
  const std::uint64_t local_source_;  // identifies the set and this machine until it reboots

  const fs::path root_;
  const fs::path files_ = root_ / "files";
  const fs::path partial_ = root_ / "partial";
  const fs::path manifest_ = root_ / "manifest";
  const fs::path journal_ = root_ / "journal";
  const fs::path lock_path_ = root_ / "staging.lock";
  const fs::path users_path_ = root_ / "in_use.lock";
  DiskFile published_;

  std::mutex mutex_;  // for the following members, while threads copy
  Published state_{.progress = {.copier = getpid()}};
  DiskFile open_journal_;
  std::uint64_t journal_bytes_ = 0;
};

}  // namespace

}  // namespace detail

StagingResult stage(const Storage& from, const std::string& folder, const std::filesystem::path& to,
                    const StagingOptions& options) {
  detail::require_usable(options);
  return detail::Staging(from, folder, to, options).run();
}

}  // namespace libtrain::data
