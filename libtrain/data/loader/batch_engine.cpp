#include <libtrain/data/loader/batch_engine.hpp>

#include <algorithm>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/stop_scope.hpp>

namespace libtrain::data::detail {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// How many samples a worker claims at once: few enough that all workers end a batch at about the same time, more than
// one where samples are so many that asking for each would cost more than a small sample does.
std::uint64_t samples_per_claim(std::uint64_t samples, int workers) {
  return std::max<std::uint64_t>(1, samples / (4 * static_cast<std::uint64_t>(std::max(workers, 1))));
}

}  // namespace

BatchEngine::BatchEngine(BatchWork& work, const BatchEngineOptions& options)
    : work_(work),
      options_(options),
      slots_(options.slots),
      last_(options.batches),
      times_(static_cast<std::size_t>(std::max(options.workers, 1))) {
  if (options.workers < 0) throw UsageError(text("workers is ", options.workers, ": it must be 0 or more."));
  if (options.slots < 1) throw UsageError("slots is 0: it must be at least 1.");
  try {
    for (int i = 0; i < options.workers; ++i) {
      workers_.emplace_back([this, i] { this->work(static_cast<std::size_t>(i)); });
    }
  } catch (...) {  // the system refuses threads: those that run must not outlive this object
    stop();
    throw;
  }
}

BatchEngine::~BatchEngine() {
  stop();
}

std::optional<std::size_t> BatchEngine::next() {
  const auto asked = Clock::now();
  std::unique_lock lock(mutex_);
  if (is_taken_) throw UsageError("The next batch is asked for where the one before could not be taken.");
  const auto index = static_cast<std::size_t>(given_back_ % slots_.size());
  Slot& slot = slots_[index];
  if (given_back_ >= last_ && slot.error) std::rethrow_exception(slot.error);  // as before: no end
  if (given_back_ >= last_) return std::nullopt;
  totals_.ready_batches +=
      static_cast<double>(std::count_if(slots_.begin(), slots_.end(), [](const Slot& one) { return one.is_ready; }));
  if (workers_.empty()) {
    lock.unlock();
    run_here();
    lock.lock();
  }
  ready_.wait(lock, [&] { return slot.is_ready; });
  totals_.seconds_waiting += seconds_since(asked);
  if (slot.error) {
    last_ = given_back_;
    lock.unlock();
    stop();
    std::rethrow_exception(slot.error);
  }
  ++totals_.batches;
  totals_.samples += slot.samples;
  is_taken_ = true;
  return index;
}

void BatchEngine::give_back() {
  const std::lock_guard lock(mutex_);
  if (!is_taken_) return;
  is_taken_ = false;
  slots_[given_back_ % slots_.size()] = {};
  ++given_back_;
  if (given_back_ == last_) totals_.seconds = seconds_since(start_);
  changed_.notify_one();
}

LoaderStatistics BatchEngine::statistics() const {
  const std::lock_guard lock(mutex_);
  LoaderStatistics result = totals_;
  result.workers = options_.workers;
  result.batch_slots = slots_.size();
  if (result.seconds == 0) result.seconds = seconds_since(start_);
  if (result.batches > 0) result.ready_batches /= static_cast<double>(result.batches);
  for (const auto& times : times_) {
    for (std::size_t stage = 0; stage < kLoaderStages; ++stage) result.stage_seconds[stage] += times.stages[stage];
    result.worker_seconds_waiting += times.waiting;
    result.read.bytes += times.read.bytes;
    result.read.cache_hits += times.read.cache_hits;
    result.read.cache_misses += times.read.cache_misses;
  }
  return result;
}

void BatchEngine::work(std::size_t worker) {
  if (options_.prepare_thread != nullptr) options_.prepare_thread();
  const StopScope stopping(stop_.get_token());
  StageClock clock;
  double waiting = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    const auto idle = Clock::now();
    changed_.wait(lock, [this] { return is_stopping() || has_samples() || has_room() || is_exhausted(); });
    waiting += seconds_since(idle);
    if (is_stopping() || is_exhausted()) break;
    clock.resume();
    if (has_samples()) {
      fill_claim(claim(), lock);
    } else {
      open_batch(lock);
    }
    clock.pause();
    note(clock, worker, waiting);
  }
}

// Opens and fills one batch in the consumer's thread.
void BatchEngine::run_here() {
  StageClock clock;
  std::unique_lock lock(mutex_);
  clock.resume();
  open_batch(lock);
  while (has_samples()) fill_claim(claim(), lock);
  clock.pause();
  auto& times = times_.front();
  for (std::size_t stage = 0; stage < kLoaderStages; ++stage) times.stages[stage] += clock.seconds()[stage];
  times.read.bytes += clock.counts().bytes;
  times.read.cache_hits += clock.counts().cache_hits;
  times.read.cache_misses += clock.counts().cache_misses;
}

// These are asked under the mutex.
bool BatchEngine::has_room() const {
  return !is_opening_ && opened_ < last_ && opened_ - given_back_ < slots_.size();
}

bool BatchEngine::has_samples() const {
  return next_sample_ < open_samples_;
}

bool BatchEngine::is_exhausted() const {
  return !is_opening_ && opened_ >= last_ && !has_samples();
}

BatchEngine::Claim BatchEngine::claim() {
  const std::uint64_t count = samples_per_claim(open_samples_, options_.workers);
  const Claim claim{.slot = static_cast<std::size_t>((opened_ - 1) % slots_.size()),
                    .begin = next_sample_,
                    .end = std::min(open_samples_, next_sample_ + count)};
  next_sample_ = claim.end;
  return claim;
}

// Only when no sample of the batch before is left to claim.
void BatchEngine::open_batch(std::unique_lock<std::mutex>& lock) {
  is_opening_ = true;
  const std::uint64_t batch = opened_;
  const auto index = static_cast<std::size_t>(batch % slots_.size());
  lock.unlock();
  std::uint64_t samples = 0;
  std::exception_ptr error;
  try {
    samples = work_.open(batch, index);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  is_opening_ = false;
  slots_[index] = {.batch = batch, .samples = samples, .unfinished = samples};
  ++opened_;
  next_sample_ = 0;
  open_samples_ = samples;
  if (error) {
    slots_[index].error = error;
    slots_[index].is_ready = true;
    last_ = std::min(last_, opened_);
    ready_.notify_one();
  } else if (samples == 0) {
    close_batch(index, lock);
  }
  changed_.notify_all();
}

void BatchEngine::fill_claim(const Claim& claim, std::unique_lock<std::mutex>& lock) {
  const std::uint64_t batch = slots_[claim.slot].batch;
  lock.unlock();
  const auto failure = fill_samples(claim, batch);
  lock.lock();
  Slot& slot = slots_[claim.slot];
  if (failure && failure->sample < slot.failed_sample) {
    slot.failed_sample = failure->sample;
    slot.error = failure->error;
    last_ = std::min(last_, opened_);  // nobody will want what comes after
  }
  slot.unfinished -= claim.end - claim.begin;
  if (slot.unfinished == 0) close_batch(claim.slot, lock);
}

// All samples of the claim, whatever becomes of one, so that the first failure of a batch is the same however many
// threads there are.
std::optional<BatchEngine::Failure> BatchEngine::fill_samples(const Claim& claim, std::uint64_t batch) {
  std::optional<Failure> failure;
  for (std::uint64_t sample = claim.begin; sample < claim.end && !is_stopping(); ++sample) {
    try {
      work_.fill(batch, claim.slot, sample);
    } catch (...) {
      if (!failure) failure = Failure{.sample = sample, .error = std::current_exception()};
    }
  }
  return failure;
}

void BatchEngine::close_batch(std::size_t index, std::unique_lock<std::mutex>& lock) {
  Slot& slot = slots_[index];
  if (!slot.error && !is_stopping()) {
    const std::uint64_t batch = slot.batch;
    lock.unlock();
    std::exception_ptr error;
    try {
      const StageScope collating(LoaderStage::collate);
      work_.close(batch, index);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      slot.error = error;
      last_ = std::min(last_, opened_);
    }
  }
  slot.is_ready = true;
  ready_.notify_one();
}

void BatchEngine::note(const StageClock& clock, std::size_t worker, double waiting) {
  times_[worker] = {.stages = clock.seconds(), .waiting = waiting, .read = clock.counts()};
}

void BatchEngine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_.request_stop();
    if (totals_.seconds == 0) totals_.seconds = seconds_since(start_);
  }
  changed_.notify_all();
  for (auto& worker : workers_) {
    if (worker.joinable()) worker.join();
  }
}

}  // namespace libtrain::data::detail
