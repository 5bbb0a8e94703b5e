#include <libtrain/data/storage/file_cache.hpp>

#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/stage_clock.hpp>
#include <libtrain/data/storage/cached_file.hpp>
#include <libtrain/data/storage/pending_entry.hpp>
#include <libtrain/data/storage/stop_scope.hpp>

namespace libtrain::data {

namespace {

// An entry can be evicted or found damaged as soon as it is there; after so many tries the remote file will do.
constexpr int kAttempts = 3;
constexpr std::uint64_t kNow = 0;  // needed at the first of all positions: anything else may be evicted for it

FileCacheOptions checked(FileCacheOptions options) {
  if (options.directory.empty()) {
    throw UsageError("The cache of remote files has no directory: name one on a local disk.");
  }
  if (options.block_bytes == 0) throw UsageError("block_bytes of the cache is 0; it must be at least 1.");
  if (!options.write) options.write = detail::write_block;
  return options;
}

}  // namespace

FileCache::FileCache(FileCacheOptions options) : options_(checked(std::move(options))) {
  try {
    auto directory = std::make_unique<detail::CacheDirectory>(options_.directory);
    auto space =
        std::make_unique<detail::CacheSpace>(*directory, options_.limit_bytes, options_.free_space_reserve_bytes);
    space->remove_left_overs();
    directory_ = std::move(directory);
    space_ = std::move(space);
  } catch (const detail::DiskError& error) {
    if (!error.is_full()) throw;
    warn_once(error.what());
  }
}

FileCache::~FileCache() = default;

std::unique_ptr<const File> FileCache::open(const Storage& from, const std::string& path, const CacheKey& key) {
  if (auto file = open_local(from, path, key)) {
    ++hits_;
    count_cache_hit();
    return file;
  }
  const Stopwatch stopwatch;
  const Request request{.from = from,
                        .path = path,
                        .key = key,
                        .needed_at = kNow,
                        .deadline = Deadline::after(options_.fetch_timeout),
                        .stop = StopScope::of_this_thread()};
  std::unique_ptr<const File> file;
  for (int attempt = 0; attempt < kAttempts && !file; ++attempt) {
    const auto outcome = make_local(request);
    if (outcome == FetchOutcome::busy) warn_once(text("Another process has not fetched '", path, "' in time."));
    if (outcome == FetchOutcome::no_room) warn_once(text("There is no room for '", path, "'."));
    if (outcome != FetchOutcome::local && outcome != FetchOutcome::fetched) break;
    file = open_local(from, path, key);
  }
  if (file) {
    ++misses_;
  } else {
    file = detail::open_unchanged(from, path, key);
    ++bypasses_;
  }
  count_cache_miss();
  seconds_waiting_ += stopwatch.seconds();
  return file;
}

FetchOutcome FileCache::fetch(const Storage& from, const std::string& path, const CacheKey& key,
                              std::uint64_t needed_at, const std::stop_token& stop) {
  if (contains(key)) return FetchOutcome::local;
  return make_local({.from = from,
                     .path = path,
                     .key = key,
                     .needed_at = needed_at,
                     .deadline = Deadline::after(std::chrono::milliseconds{0}),
                     .stop = stop});
}

std::unique_ptr<const File> FileCache::open_local(const Storage& from, const std::string& path, const CacheKey& key) {
  if (!directory_) return nullptr;
  try {
    auto entry = directory_->open_entry(key.hash);
    if (!entry.is_open()) return nullptr;
    auto name = detail::describe(from, path);
    if (!is_sound(entry, key, name)) return nullptr;
    directory_->touch(entry);
    return std::make_unique<detail::CachedFile>(std::move(name), key.size, std::move(entry));
  } catch (const detail::DiskError& error) {
    warn_once(error.what());
    return nullptr;
  }
}

bool FileCache::is_sound(const detail::DiskFile& entry, const CacheKey& key, const std::string& name) {
  bool was_checked = false;
  {
    const std::lock_guard lock(mutex_);
    was_checked = sound_.contains(key.hash);
  }
  const auto fault = was_checked ? detail::find_wrong_length(entry, key) : detail::find_damage(entry, key);
  if (fault.empty() && was_checked) return true;
  if (!fault.empty()) {
    log_warning(text("The copy of '", name, "' in the cache '", options_.directory.string(), "' is damaged (", fault,
                     "): it is thrown away and fetched again."));
    ++damaged_;
    space_->discard(entry, key);
  }
  const std::lock_guard lock(mutex_);
  if (fault.empty()) {
    sound_.insert(key.hash);
  } else {
    sound_.erase(key.hash);
  }
  return fault.empty();
}

FetchOutcome FileCache::make_local(const Request& request) {
  if (!directory_ || detail::entry_bytes(request.key.size) > options_.limit_bytes) return FetchOutcome::no_room;
  const auto turn = flights_.enter(request.key.hash, request.deadline, request.stop);
  if (!turn) return request.stop.stop_requested() ? FetchOutcome::stopped : FetchOutcome::busy;
  if (directory_->has(request.key.hash)) return FetchOutcome::local;
  try {
    return claim_and_download(request);
  } catch (const detail::DiskError& error) {
    warn_once(error.what());
    return FetchOutcome::no_room;
  }
}

FetchOutcome FileCache::claim_and_download(const Request& request) {
  auto claim = directory_->claim(request.key.hash, request.deadline, request.stop);
  if (!claim.is_open()) return request.stop.stop_requested() ? FetchOutcome::stopped : FetchOutcome::busy;
  detail::PendingEntry pending(*directory_, *space_, request.key, std::move(claim));
  if (directory_->has(request.key.hash)) return FetchOutcome::local;

  const auto next_use_of = [this](const ContentHash& entry) { return next_use(entry); };
  if (!pending.book(next_use_of, request.needed_at)) return FetchOutcome::no_room;
  const auto remote = detail::open_unchanged(request.from, request.path, request.key);
  const auto content = detail::download(*remote, pending.file(),
                                        {.block_bytes = options_.block_bytes, .write = options_.write}, request.stop);
  if (!content) return FetchOutcome::stopped;
  const int error = pending.commit(*content, options_.sync_to_disk);
  if (error != 0) detail::throw_disk_error("write", directory_->fetching_path(request.key.hash), error);

  ++fetched_files_;
  fetched_bytes_ += request.key.size;
  const std::lock_guard lock(mutex_);
  sound_.insert(request.key.hash);
  return FetchOutcome::fetched;
}

void FileCache::expect(const CacheKey& key, std::uint64_t next_use) {
  const std::lock_guard lock(mutex_);
  if (next_use == kNeverUsed) {
    next_uses_.erase(key.hash);
  } else {
    next_uses_[key.hash] = next_use;
  }
}

std::uint64_t FileCache::next_use(const ContentHash& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = next_uses_.find(key);
  return found == next_uses_.end() ? kNeverUsed : found->second;
}

bool FileCache::contains(const CacheKey& key) const {
  return directory_ && directory_->has(key.hash);
}

std::uint64_t FileCache::capacity_bytes() const {
  return space_ ? space_->capacity_bytes() : 0;
}

FileCacheStatistics FileCache::statistics() const {
  return {.hits = hits_.load(),
          .misses = misses_.load(),
          .bypasses = bypasses_.load(),
          .fetched_files = fetched_files_.load(),
          .fetched_bytes = fetched_bytes_.load(),
          .evictions = space_ ? space_->evictions() : 0,
          .evicted_bytes = space_ ? space_->evicted_bytes() : 0,
          .damaged = damaged_.load(),
          .seconds_waiting = seconds_waiting_.load()};
}

void FileCache::warn_once(const std::string& reason) {
  if (has_warned_.exchange(true)) return;
  log_warning(text("The cache '", options_.directory.string(), "' cannot keep every file: ", reason,
                   " What it cannot keep is read remotely; this is said once."));
}

}  // namespace libtrain::data
