#include <libtrain/data/storage/prefetcher.hpp>

#include <algorithm>
#include <exception>
#include <limits>
#include <unordered_map>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

PrefetcherOptions checked(PrefetcherOptions options) {
  if (options.threads < 1) {
    throw UsageError(text("A prefetcher has ", options.threads, " threads; it needs 1 or more."));
  }
  if (options.files_ahead < 1) throw UsageError("files_ahead of a prefetcher is 0; it must be at least 1.");
  if (options.bytes_ahead < 1) throw UsageError("bytes_ahead of a prefetcher is 0; it must be at least 1.");
  return options;
}

detail::NumberedFiles number_files(const ReadingOrder& order) {
  if (!order.path_of) throw UsageError("A reading order has no function that gives the path of a position.");
  if (order.last < order.first) {
    throw UsageError(
        text("A reading order goes from position ", order.first, " to ", order.last, ", which is before."));
  }
  detail::NumberedFiles files;
  files.uses.reserve(order.last - order.first);
  std::unordered_map<std::string, std::uint32_t> numbers;
  for (std::uint64_t position = order.first; position < order.last; ++position) {
    auto path = order.path_of(position);
    const auto [found, is_new] = numbers.try_emplace(path, static_cast<std::uint32_t>(files.paths.size()));
    if (is_new) files.paths.push_back(std::move(path));
    if (files.paths.size() > std::numeric_limits<std::uint32_t>::max()) {
      throw UsageError("A reading order names more files than fit 32 bits.");
    }
    files.uses.push_back(found->second);
  }
  return files;
}

std::vector<CacheKey> keys_of(const CachedStorage& storage, const detail::NumberedFiles& files) {
  std::vector<CacheKey> keys;
  keys.reserve(files.paths.size());
  for (const auto& path : files.paths) keys.push_back(storage.key_of(path));
  return keys;
}

PrefetchPlan make_plan(const FileCache& cache, const detail::NumberedFiles& files, const std::vector<CacheKey>& keys) {
  PrefetchTask task{.uses = files.uses, .capacity_bytes = cache.capacity_bytes()};
  for (std::size_t file = 0; file < keys.size(); ++file) {
    task.file_bytes.push_back(detail::entry_bytes(keys[file].size));
    if (cache.contains(keys[file])) task.local.push_back(static_cast<std::uint32_t>(file));
  }
  return PrefetchPlan(task);
}

std::vector<std::uint64_t> sums_before(const PrefetchPlan& plan, const std::vector<CacheKey>& keys) {
  std::vector<std::uint64_t> sums;
  std::uint64_t sum = 0;
  for (const auto& fetch : plan.fetches()) {
    sums.push_back(sum);
    sum += detail::entry_bytes(keys[fetch.file].size);
  }
  return sums;
}

}  // namespace

Prefetcher::Prefetcher(const CachedStorage& storage, const ReadingOrder& order, PrefetcherOptions options)
    : storage_(storage),
      options_(checked(options)),
      first_(order.first),
      files_(number_files(order)),
      keys_(keys_of(storage, files_)),
      plan_(make_plan(storage.cache(), files_, keys_)),
      bytes_before_(sums_before(plan_, keys_)) {
  for (std::uint32_t file = 0; file < keys_.size(); ++file) expect(file, plan_.first_use(file));
  try {
    for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {  // the system refuses threads: those that run must not outlive this object
    stop();
    throw;
  }
}

Prefetcher::~Prefetcher() {
  stop();
  // Whoever comes next must not find entries kept for what is not read any more.
  for (const CacheKey& key : keys_) storage_.cache().expect(key, kNeverUsed);
}

void Prefetcher::advance(std::uint64_t position) {
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t passed = position - std::min(position, first_);
    const std::uint64_t end = std::min<std::uint64_t>(passed, files_.uses.size());
    for (; done_ < end; ++done_) expect(files_.uses[done_], plan_.next_use(done_));
    skip_passed();
  }
  changed_.notify_all();
}

bool Prefetcher::wait_until_idle(const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline.time_point(), [this] { return running_ == 0 && !may_start(); });
}

PrefetcherStatistics Prefetcher::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void Prefetcher::work() {
  const auto stop = stop_.get_token();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, stop, [this] { return may_start() || next_ == plan_.fetches().size(); });
    if (stop.stop_requested() || next_ == plan_.fetches().size()) return;
    const PlannedFetch fetch = plan_.fetches()[next_++];
    ++running_;
    lock.unlock();
    const auto outcome = run(fetch);
    lock.lock();
    --running_;
    count(outcome);
    changed_.notify_all();
  }
}

// Nothing where it failed.
std::optional<FetchOutcome> Prefetcher::run(const PlannedFetch& fetch) const {
  const auto& path = files_.paths[fetch.file];
  try {
    return storage_.cache().fetch(storage_.remote(), path, keys_[fetch.file], first_ + fetch.needed_at,
                                  stop_.get_token());
  } catch (const std::exception& error) {
    log_debug(text("'", path, "' was not fetched ahead: ", error.what()));
    return std::nullopt;
  }
}

void Prefetcher::count(const std::optional<FetchOutcome>& outcome) {
  if (!outcome) {
    ++statistics_.failed;
    return;
  }
  switch (*outcome) {
    case FetchOutcome::local:
      ++statistics_.local;
      break;
    case FetchOutcome::fetched:
      ++statistics_.fetched;
      break;
    case FetchOutcome::busy:
      ++statistics_.busy;
      break;
    case FetchOutcome::no_room:
      ++statistics_.no_room;
      break;
    case FetchOutcome::stopped:
      break;
  }
}

void Prefetcher::expect(std::uint32_t file, std::uint64_t next_use) const {
  storage_.cache().expect(keys_[file], next_use == kNeverUsed ? kNeverUsed : first_ + next_use);
}

// A file whose first use has come is the reader's to fetch.
void Prefetcher::skip_passed() {
  const auto& fetches = plan_.fetches();
  while (passed_ < fetches.size() && fetches[passed_].needed_at < done_) ++passed_;
  next_ = std::max(next_, passed_);
}

bool Prefetcher::may_start() const {
  if (next_ == plan_.fetches().size() || plan_.fetches()[next_].start_at > done_) return false;
  return next_ - passed_ < options_.files_ahead && bytes_before_[next_] - bytes_before_[passed_] < options_.bytes_ahead;
}

void Prefetcher::stop() {
  stop_.request_stop();
  for (auto& thread : threads_) thread.join();
}

}  // namespace libtrain::data
