#include <libtrain/data/storage/file_cache.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/stage_clock.hpp>
#include <libtrain/data/storage/detail/stop_scope.hpp>

namespace libtrain::data {

namespace {

// An entry can be evicted or found damaged right after it was made; then the remote file is opened.
constexpr int kMaxOpenAttempts = 3;
// The processes of a node do not begin the first epoch at the same moment: entries used this long before it are kept.
constexpr std::int64_t kFirstEpochMargin = 60'000'000'000;  // nanoseconds

FileCacheOptions checked(FileCacheOptions options) {
  if (options.directory.empty()) {
    throw UsageError("The cache of remote files has no directory. Name one on a local disk.");
  }
  if (options.block_bytes == 0) throw UsageError("block_bytes of the cache is 0; it must be at least 1.");
  return options;
}

}  // namespace

FileCache::FileCache(FileCacheOptions options) : options_(checked(std::move(options))) {
  try {
    directory_ = std::make_unique<detail::CacheDirectory>(options_.directory, options_.limit_bytes,
                                                          options_.free_space_reserve_bytes);
  } catch (const detail::DiskError& error) {
    if (!error.is_full()) throw;
    warn_once(error.what());
  }
}

std::unique_ptr<const File> FileCache::open(const Storage& from, const std::string& path, const CacheKey& key) {
  if (auto file = open_local(from, path, key)) {
    count(&FileCacheStatistics::hits);
    count_cache_hit();
    return file;
  }
  const Stopwatch stopwatch;
  const Request request{.from = from,
                        .path = path,
                        .key = key,
                        .deadline = Deadline::after(options_.fetch_timeout),
                        .stop = detail::StopScope::of_this_thread()};
  std::unique_ptr<const File> file;
  for (int attempt = 0; attempt < kMaxOpenAttempts && !file; ++attempt) {
    const auto outcome = make_local(request);
    if (outcome == FetchOutcome::busy) warn_once(text("Another process has not fetched '", path, "' in time."));
    if (outcome == FetchOutcome::no_space || outcome == FetchOutcome::refused) {
      warn_once(text("There is no space for '", path, "'."));
    }
    if (outcome != FetchOutcome::hit && outcome != FetchOutcome::fetched) break;
    file = open_local(from, path, key);
  }
  const bool is_copy = file != nullptr;
  if (!is_copy) file = detail::open_unchanged(from, path, key);
  count(is_copy ? &FileCacheStatistics::misses : &FileCacheStatistics::bypasses);
  count_cache_miss();
  const std::lock_guard lock(mutex_);
  statistics_.seconds_waiting += stopwatch.seconds();
  return file;
}

FetchOutcome FileCache::fetch(const Storage& from, const std::string& path, const CacheKey& key,
                              const std::stop_token& stop) {
  if (contains(key)) return FetchOutcome::hit;
  return make_local({.from = from,
                     .path = path,
                     .key = key,
                     .deadline = Deadline::after(std::chrono::milliseconds{0}),
                     .stop = stop});
}

std::unique_ptr<const File> FileCache::open_local(const Storage& from, const std::string& path, const CacheKey& key) {
  if (!directory_) return nullptr;
  try {
    auto entry = directory_->open_entry(key.hash);
    if (!entry.is_open()) return nullptr;
    auto name = detail::describe(from, path);
    if (!is_valid(entry, key, name)) return nullptr;
    detail::set_modification_time(entry, detail::wall_clock_nanoseconds());
    return std::make_unique<detail::CachedFile>(std::move(name), key.size, std::move(entry));
  } catch (const detail::DiskError& error) {
    warn_once(error.what());
    return nullptr;
  }
}

bool FileCache::is_valid(const detail::DiskFile& entry, const CacheKey& key, const std::string& name) {
  bool was_checked = false;
  {
    const std::lock_guard lock(mutex_);
    was_checked = verified_.contains(key.hash);
  }
  const auto fault = was_checked ? detail::find_wrong_length(entry, key) : detail::find_damage(entry, key);
  if (fault.empty() && was_checked) return true;
  if (!fault.empty()) {
    log_warning(text("The copy of '", name, "' in the cache '", options_.directory.string(), "' is damaged (", fault,
                     "). It is removed and fetched again."));
    count(&FileCacheStatistics::damaged);
    directory_->discard(entry, key);
  }
  const std::lock_guard lock(mutex_);
  if (fault.empty()) {
    verified_.insert(key.hash);
  } else {
    verified_.erase(key.hash);
  }
  return fault.empty();
}

// One thread of this process at a time fetches a key, so that the other threads need not poll the file's lock.
FetchOutcome FileCache::make_local(const Request& request) {
  if (!directory_) return FetchOutcome::refused;
  const auto& key = request.key.hash;
  const auto mine = std::make_shared<Fetch>();
  {
    std::unique_lock lock(mutex_);
    for (auto found = fetching_.find(key); found != fetching_.end(); found = fetching_.find(key)) {
      const auto other = found->second;
      const auto has_ended = [&] { return other->has_ended; };
      if (!fetched_.wait_until(lock, request.stop, request.deadline.time_point(), has_ended)) {
        return request.stop.stop_requested() ? FetchOutcome::stopped : FetchOutcome::busy;
      }
      if (!other->unavailable.empty()) throw StorageUnavailable(other->unavailable);
    }
    fetching_.emplace(key, mine);
  }
  const auto end_turn = [&](const void*) {
    {
      const std::lock_guard lock(mutex_);
      mine->has_ended = true;
      fetching_.erase(key);
    }
    fetched_.notify_all();
  };
  const std::unique_ptr<const void, decltype(end_turn)> turn(this, end_turn);
  if (directory_->has(key)) return FetchOutcome::hit;
  try {
    return claim_and_download(request);
  } catch (const detail::DiskError& error) {
    warn_once(error.what());
    return FetchOutcome::refused;
  } catch (const StorageUnavailable& error) {
    // The waiting threads do not repeat minutes of attempts. A stop concerns this thread alone.
    const std::lock_guard lock(mutex_);
    if (!request.stop.stop_requested()) mine->unavailable = error.what();
    throw;
  }
}

FetchOutcome FileCache::claim_and_download(const Request& request) {
  const auto& key = request.key;
  auto file = directory_->claim(key.hash, request.deadline, request.stop);
  if (!file.is_open()) return request.stop.stop_requested() ? FetchOutcome::stopped : FetchOutcome::busy;
  detail::CacheClaim claim(*directory_, key, std::move(file));
  if (directory_->has(key.hash)) return FetchOutcome::hit;
  {
    detail::CacheAccount account(*directory_);
    const std::uint64_t bytes = detail::entry_bytes(key.size);
    if (bytes > account.capacity()) return FetchOutcome::refused;
    if (!make_room(account, bytes)) return FetchOutcome::no_space;
    claim.book(account);
  }
  const auto remote = detail::open_to_copy(request.from, request.path, key);
  const auto content = detail::download(*remote, claim.file(),
                                        {.block_bytes = options_.block_bytes, .write = options_.write}, request.stop);
  if (!content) return FetchOutcome::stopped;
  detail::require_unchanged(request.from, request.path, key);
  claim.commit(*content);

  count(&FileCacheStatistics::fetched_files);
  count(&FileCacheStatistics::fetched_bytes, key.size);
  const std::lock_guard lock(mutex_);
  verified_.insert(key.hash);
  return FetchOutcome::fetched;
}

bool FileCache::make_room(detail::CacheAccount& account, std::uint64_t bytes) {
  if (must_list(account.missing(bytes))) list_victims(account.recount_entries());
  while (const std::uint64_t wanted = account.missing(bytes)) {
    const auto victims = take_victims(wanted);
    if (victims.empty()) return false;
    for (const auto& victim : victims) {
      if (!account.evict(victim)) continue;
      count(&FileCacheStatistics::evictions);
      count(&FileCacheStatistics::evicted_bytes, victim.bytes);
    }
  }
  return true;
}

// Listing takes time in proportion to the number of entries. During an epoch once is enough, because no entry becomes
// older than the previous epoch.
bool FileCache::must_list(std::uint64_t bytes) {
  if (bytes == 0) return false;
  const std::lock_guard lock(mutex_);
  if (!expected_.empty()) return !std::exchange(has_listed_, true);
  std::uint64_t found = 0;
  for (auto victim = victims_.begin(); victim != victims_.end() && found < bytes; ++victim) found += victim->bytes;
  return found < bytes;
}

void FileCache::list_victims(std::vector<detail::StoredEntry> entries) {
  const auto rank = [](const detail::StoredEntry& entry) {
    return std::tuple(entry.last_used, entry.key.high, entry.key.low);
  };
  std::sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  const std::lock_guard lock(mutex_);
  if (expected_.empty()) {
    victims_.clear();
  } else {
    std::erase_if(entries, [&](const auto& entry) { return entry.last_used >= keep_since_; });
  }
  victims_.insert(victims_.begin(), entries.begin(), entries.end());
}

// The first victims that together have `bytes` bytes; none if all victims have fewer.
std::vector<detail::StoredEntry> FileCache::take_victims(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto may_evict = [&](const detail::StoredEntry& entry) { return !expected_.contains(entry.key); };
  std::uint64_t found = 0;
  auto end = victims_.begin();
  for (; end != victims_.end() && found < bytes; ++end) found += may_evict(*end) ? end->bytes : 0;
  if (found < bytes) return {};
  std::vector<detail::StoredEntry> victims;
  std::copy_if(victims_.begin(), end, std::back_inserter(victims), may_evict);
  victims_.erase(victims_.begin(), end);
  return victims;
}

void FileCache::expect(std::span<const CacheKey> keys) {
  if (!directory_ || keys.empty()) return;
  std::unordered_map<ContentHash, std::uint32_t> uses;
  for (const auto& key : keys) ++uses[key.hash];
  {
    const std::lock_guard lock(mutex_);
    if (expected_.empty()) {
      const auto now = detail::wall_clock_nanoseconds();
      keep_since_ = epoch_began_ == 0 ? now - kFirstEpochMargin : epoch_began_;
      epoch_began_ = now;
      victims_.clear();
      has_listed_ = false;
      expected_.swap(uses);  // fast for millions of keys, while other threads wait for the lock
    }
    for (const auto& [key, times] : uses) expected_[key] += times;
  }
  // So that the other processes of the node do not evict them.
  for (const auto& key : keys) directory_->touch(key.hash);
}

void FileCache::release(const CacheKey& key) {
  if (!directory_) return;
  const bool is_there = directory_->has(key.hash);
  const std::lock_guard lock(mutex_);
  const auto found = expected_.find(key.hash);
  if (found == expected_.end() || --found->second > 0) return;
  expected_.erase(found);
  if (!is_there) return;
  victims_.push_back(
      {.key = key.hash, .bytes = detail::entry_bytes(key.size), .last_used = detail::wall_clock_nanoseconds()});
}

bool FileCache::contains(const CacheKey& key) const {
  return directory_ && directory_->has(key.hash);
}

FileCacheStatistics FileCache::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void FileCache::count(std::uint64_t FileCacheStatistics::* number, std::uint64_t more) {
  const std::lock_guard lock(mutex_);
  statistics_.*number += more;
}

void FileCache::warn_once(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(has_warned_, true)) return;
  }
  log_warning(text("The cache '", options_.directory.string(), "' cannot keep every file: ", reason,
                   " Files that are not cached are read from the remote storage. This warning appears once."));
}

void detail::CachedFile::read_at(std::uint64_t offset, std::span<std::byte> to) const {
  require_range(*this, offset, to.size());
  const auto got = entry_.read(offset, to);
  if (got == to.size()) return;
  const int code = errno;
  throw StorageUnavailable(text("File '", name_, "', byte offset ", offset, ": its copy in the cache cannot be read: ",
                                got ? "it was truncated" : std::strerror(code), ". Check the disk."));
}

}  // namespace libtrain::data
