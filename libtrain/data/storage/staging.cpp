#include <libtrain/data/storage/staging.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/cache_entry.hpp>
#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/disk_file.hpp>
#include <libtrain/data/storage/file.hpp>
#include <libtrain/data/storage/file_lock.hpp>
#include <libtrain/data/storage/local_file.hpp>
#include <libtrain/data/storage/staging_area.hpp>
#include <libtrain/data/storage/staging_copy.hpp>
#include <libtrain/data/storage/staging_manifest.hpp>

namespace libtrain::data {

namespace detail {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLongestManifest = std::uint64_t{4} << 30;

void require_usable(const StagingOptions& options) {
  if (options.threads < 1) throw UsageError(text("Staging has ", options.threads, " threads; it needs 1 or more."));
  if (options.block_bytes == 0) throw UsageError("block_bytes of staging is 0; it must be at least 1.");
  if (options.stall_timeout.count() <= 0) {
    throw UsageError(text("stall_timeout of staging is ", options.stall_timeout.count(), " ms; it must be positive."));
  }
}

// Without the file, or with one too long to be ours, everything is copied.
std::string read_or_empty(const fs::path& path) {
  try {
    return read_all(*open_local_file(path.string()), kLongestManifest);
  } catch (const EnvironmentError&) {
    return {};
  }
}

/// What one call of stage() does once it is its turn.
class Staging {
 public:
  Staging(const Storage& from, const std::string& folder, const StagingArea& area, const StagingOptions& options)
      : from_(from),
        folder_(folder),
        area_(area),
        options_(options),
        name_(describe(from, folder)),
        source_(folder.empty() ? from.identity() : text(from.identity(), '/', folder)),
        local_source_(content_hash(std::as_bytes(std::span<const char>(from.local_identity()))).low) {}

  /// Nothing to do where another process has completed the manifest since this one began, with files of this machine:
  /// nodes that share the area may have different folders by one path.
  bool was_done_since(std::int64_t began, StagingResult& result) const {
    if (area_.published_source() != local_source_) return false;
    const auto written = modification_time(area_.manifest());
    if (!written || *written < began) return false;
    const auto totals = read_totals(read_or_empty(area_.manifest()), source_);
    if (!totals) return false;
    result.files = totals->files;
    result.bytes = totals->bytes;
    return true;
  }

  void run(StagingResult& result) const {
    area_.publish({});  // listing takes a while: until then those who wait would see what an earlier copier has left
    const auto tasks = list_tasks(from_, folder_);
    auto record = read_or_empty(area_.manifest());
    const bool is_complete = read_totals(record, source_).has_value();
    if (!is_complete) record = read_or_empty(area_.journal());
    const auto known = read_files(record, source_);
    // What a journal names may never have reached the disk, if the machine went down: then lengths are right all the
    // same.
    const auto check = is_complete ? options_.check : StagedCheck::hashes;

    std::vector<StagingTask> missing;
    std::string journal = manifest_head(source_);
    StagingProgress done{.files_total = tasks.size()};
    for (const auto& task : tasks) done.bytes_total += task.remote.size;
    for (const auto& task : tasks) {
      const auto found = known.find(task.path);
      if (found == known.end() || !is_there(task, found->second, check)) {
        missing.push_back(task);
        continue;
      }
      ++done.files_done;
      done.bytes_done += task.remote.size;
      area_.publish(done);
      journal += manifest_line(found->first, found->second);
    }
    result.files = done.files_total;
    result.bytes = done.bytes_total;
    result.copied_files = missing.size();
    result.copied_bytes = done.bytes_total - done.bytes_done;
    if (is_complete && missing.empty() && known.size() == tasks.size()) {
      confirm(area_.manifest());
    } else {
      copy(tasks, missing, journal, done);
    }
    area_.publish({.files_done = result.files,
                   .files_total = result.files,
                   .bytes_done = result.bytes,
                   .bytes_total = result.bytes},
                  local_source_);
  }

 private:
  bool is_there(const StagingTask& task, const StagedFile& staged, StagedCheck check) const {
    if (staged.size != task.remote.size || staged.version != task.remote.version) return false;
    const auto path = area_.files() / task.path;
    std::error_code error;
    if (task.remote.kind == FileKind::empty_folder) return fs::is_directory(path, error);
    if (task.remote.kind == FileKind::unreadable) return fs::is_symlink(path, error);
    if (fs::file_size(path, error) != staged.size || error) return false;
    if (check == StagedCheck::sizes) return true;
    const auto file = DiskFile::open(path, O_RDONLY);
    return file.is_open() && hash_of_beginning(file, staged.size) == staged.hash;
  }

  void copy(const std::vector<StagingTask>& tasks, const std::vector<StagingTask>& missing, const std::string& journal,
            const StagingProgress& done) const {
    require_unused();
    // The new journal is in its place before the manifest goes, so that a kill in between forgets no file.
    write_file(area_.journal(), journal);
    unlink(area_.manifest().c_str());
    sync_folder(area_.root());
    std::error_code ignored;
    fs::remove_all(area_.partial(), ignored);
    make_folder(area_.files());
    remove_strangers(tasks);
    require_space(missing);
    const auto open_journal = open_to_write(area_.journal());
    StagingCopy(from_, area_, open_journal, options_, done).run(missing);
    finish(open_journal, {.files = tasks.size(), .bytes = done.bytes_total});
  }

  // Those who read hold the lock as long as they do.
  void require_unused() const {
    if (try_lock(open_to_write(area_.users()), LockMode::exclusive)) return;
    throw EnvironmentError(text("'", name_, "' has changed since it was staged to '", area_.root().string(),
                                "', or is another folder on the node that did, and another run still reads that copy: "
                                "wait for its end, or stage to another folder."));
  }

  // Always by the same other name, which a lock makes safe, so that killed processes do not leave one each.
  void write_file(const fs::path& path, std::string_view content) const {
    const auto partial = area_.root() / "journal.partial";
    const auto file = open_to_write(partial, O_TRUNC);
    const int error = file.write(0, content);
    if (error != 0) throw_disk_error("write", partial, error);
    if (std::rename(partial.c_str(), path.c_str()) != 0) throw_disk_error("rename", partial, errno);
  }

  // What an earlier version of the set had would otherwise be taken for a part of it.
  void remove_strangers(const std::vector<StagingTask>& tasks) const {
    std::unordered_set<std::string> expected;
    for (const auto& task : tasks) {
      const bool is_folder = task.remote.kind == FileKind::empty_folder;
      expected.insert((area_.files() / task.path).string() + (is_folder ? "/" : ""));
    }
    std::vector<fs::path> folders;
    std::vector<fs::path> strangers;
    std::error_code error;
    for (auto file = fs::recursive_directory_iterator(area_.files(), error);
         !error && file != fs::recursive_directory_iterator(); file.increment(error)) {
      const bool is_folder = file->symlink_status(error).type() == fs::file_type::directory;
      if (expected.contains(file->path().string() + (is_folder ? "/" : ""))) continue;
      (is_folder ? folders : strangers).push_back(file->path());
    }
    if (error) throw_disk_error("list the folder", area_.files(), error.value());
    for (const auto& stranger : strangers) unlink(stranger.c_str());
    // Innermost first; those that still hold something stay.
    for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) rmdir(folder->c_str());
  }

  void require_space(const std::vector<StagingTask>& missing) const {
    std::uint64_t needed = 0;
    for (const auto& task : missing) needed += disk_bytes(task.remote.size);
    const std::uint64_t available = available_bytes(area_.root());
    const std::uint64_t reserve = options_.free_space_reserve_bytes;
    if (needed == 0 || (needed <= available && available - needed >= reserve)) return;
    throw EnvironmentError(text("Staging '", name_, "' to '", area_.root().string(), "' needs ", needed,
                                " bytes more and is to leave ", reserve, " free, but the disk has ", available,
                                ". Free some, stage to another disk, or read through a cache instead."));
  }

  // `journal` has been open since before the first file was written: of errors of the disk, the kernel tells a
  // descriptor those since it was opened.
  void finish(const DiskFile& journal, const StagedTotals& totals) const {
    const auto path = area_.journal();
    const auto lines = read_all(*open_local_file(path.string()), kLongestManifest);
    const auto end = manifest_end(lines, totals);
    int error = journal.write(lines.size(), end);
    if (error == 0) error = options_.sync(journal);
    if (error != 0) throw_disk_error("write", path, error);
    if (std::rename(path.c_str(), area_.manifest().c_str()) != 0) throw_disk_error("rename", path, errno);
    sync_folder(area_.root());
    set_modification_time(journal, wall_clock_nanoseconds());
  }

  // The time tells those who wait that the manifest is as good as new.
  static void confirm(const fs::path& manifest) {
    set_modification_time(open_to_write(manifest), wall_clock_nanoseconds());
  }

  const Storage& from_;
  const std::string& folder_;
  const StagingArea& area_;
  const StagingOptions& options_;
  const std::string name_;            // for messages
  const std::string source_;          // tells it from all others
  const std::uint64_t local_source_;  // and from those of other machines
};

std::shared_ptr<const void> hold(const StagingArea& area) {
  auto lock = std::make_shared<DiskFile>(open_to_write(area.users()));
  if (try_lock(*lock, LockMode::shared)) return lock;
  throw_disk_error("lock", area.users(), EWOULDBLOCK);  // only a copier locks it, and it is this process's turn
}

}  // namespace

}  // namespace detail

StagingResult stage(const Storage& from, const std::string& folder, const std::filesystem::path& to,
                    const StagingOptions& options) {
  detail::require_usable(options);
  const Stopwatch stopwatch;
  const std::int64_t began = detail::wall_clock_nanoseconds();
  const detail::StagingArea area(to);
  const auto turn = area.wait_for_turn(options.stall_timeout, options.progress);
  const detail::Staging staging(from, folder, area, options);
  StagingResult result{.folder = area.files()};
  if (!staging.was_done_since(began, result)) staging.run(result);
  result.in_use = detail::hold(area);
  result.seconds = stopwatch.seconds();
  return result;
}

}  // namespace libtrain::data
