#include <libtrain/data/storage/prefetcher.hpp>

#include <algorithm>
#include <exception>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/stop_scope.hpp>

namespace libtrain::data {

namespace {

PrefetcherOptions checked(PrefetcherOptions options) {
  if (options.threads < 1) {
    throw UsageError(text("A prefetcher has ", options.threads, " threads; it needs at least 1."));
  }
  if (options.files_ahead < 1) throw UsageError("files_ahead of a prefetcher is 0; it must be at least 1.");
  if (options.bytes_ahead < 1) throw UsageError("bytes_ahead of a prefetcher is 0; it must be at least 1.");
  return options;
}

std::vector<CacheKey> keys_of(const CachedStorage* storage, const std::vector<std::string>& paths) {
  if (storage == nullptr) throw UsageError("A prefetcher needs a cached storage.");
  std::vector<CacheKey> keys;
  keys.reserve(paths.size());
  for (const auto& path : paths) keys.push_back(storage->key_of(path));
  return keys;
}

}  // namespace

Prefetcher::Prefetcher(std::shared_ptr<const CachedStorage> storage, std::vector<std::string> paths,
                       PrefetcherOptions options)
    : storage_(std::move(storage)),
      options_(checked(options)),
      paths_(std::move(paths)),
      keys_(keys_of(storage_.get(), paths_)),
      states_(paths_.size(), State::open) {
  storage_->cache().expect(keys_);
  try {
    for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {  // the system refuses threads: the existing ones must not outlive this object
    stop();
    throw;
  }
}

Prefetcher::~Prefetcher() {
  stop();
}

void Prefetcher::advance(std::uint64_t position) {
  {
    const std::lock_guard lock(mutex_);
    const auto end = static_cast<std::size_t>(std::min<std::uint64_t>(position, paths_.size()));
    for (; done_ < end; ++done_) {
      settle(done_);
      storage_->cache().release(keys_[done_]);
    }
    next_ = std::max(next_, done_);  // the reader itself fetches the file at its position
    waits_for_space_ = false;
  }
  changed_.notify_all();
}

bool Prefetcher::wait_until_idle(const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline.time_point(), [this] { return running_ == 0 && !may_start(); });
}

void Prefetcher::work() {
  const auto stop = stop_.get_token();
  const detail::StopScope stopping(stop);  // ends the waits between two attempts of a request
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, stop, [this] { return may_start() || done_ == paths_.size(); });
    if (stop.stop_requested() || done_ == paths_.size()) return;
    const std::size_t position = next_++;
    if (states_[position] != State::open) {  // fetched while there was no space for an earlier file
      changed_.notify_all();
      continue;
    }
    states_[position] = State::ahead;
    ++files_ahead_;
    bytes_ahead_ += detail::entry_bytes(keys_[position].size);
    ++running_;
    lock.unlock();
    const auto outcome = fetch(position);
    lock.lock();
    --running_;
    if (outcome != FetchOutcome::fetched) settle(position);
    if (outcome == FetchOutcome::no_space && position >= done_) {
      states_[position] = State::open;
      next_ = std::min(next_, position);
      waits_for_space_ = true;
    }
    changed_.notify_all();
  }
}

// Ignores errors: the reader of the file will get them.
FetchOutcome Prefetcher::fetch(std::size_t position) const {
  try {
    return storage_->cache().fetch(storage_->remote(), paths_[position], keys_[position], stop_.get_token());
  } catch (const std::exception& error) {
    log_debug(text("'", paths_[position], "' was not fetched ahead: ", error.what()));
    return FetchOutcome::refused;
  }
}

bool Prefetcher::may_start() const {
  return next_ < paths_.size() && !waits_for_space_ && files_ahead_ < options_.files_ahead &&
         bytes_ahead_ < options_.bytes_ahead;
}

void Prefetcher::settle(std::size_t position) {
  if (std::exchange(states_[position], State::settled) != State::ahead) return;
  --files_ahead_;
  bytes_ahead_ -= detail::entry_bytes(keys_[position].size);
}

void Prefetcher::stop() {
  stop_.request_stop();
  for (auto& thread : threads_) thread.join();
  // So that the cache does not keep entries that will not be read.
  for (; done_ < paths_.size(); ++done_) storage_->cache().release(keys_[done_]);
}

}  // namespace libtrain::data
