#include <libtrain/data/loader/batch_engine.hpp>

#include <algorithm>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/detail/stop_scope.hpp>

namespace libtrain::data::detail {

namespace {

// How many samples a worker claims at once: few enough that all workers finish a batch at about the same time, and more
// than one in large batches, in which a lock for each sample would cost more than a small sample.
std::uint64_t samples_per_claim(std::uint64_t samples, int workers) {
  return std::max<std::uint64_t>(1, samples / (4 * static_cast<std::uint64_t>(std::max(workers, 1))));
}

}  // namespace

BatchEngine::BatchEngine(BatchMaker& maker, const BatchEngineOptions& options)
    : maker_(maker),
      options_(options),
      slots_(options.slots),
      last_(options.batches),
      by_worker_(static_cast<std::size_t>(std::max(options.workers, 1))) {
  try {
    for (int i = 0; i < options.workers; ++i) {
      workers_.emplace_back([this, i] { work(static_cast<std::size_t>(i)); });
    }
  } catch (...) {  // no more threads: those that were started must not outlive this object
    stop();
    throw;
  }
}

BatchEngine::~BatchEngine() {
  stop();
}

std::optional<std::size_t> BatchEngine::next() {
  const Stopwatch waiting;
  std::unique_lock lock(mutex_);
  if (is_taken_) {
    throw UsageError(
        "next() was called before the previous batch was returned. Do not continue an epoch after an exception.");
  }
  const auto index = static_cast<std::size_t>(given_back_ % slots_.size());
  Slot& slot = slots_[index];
  if (given_back_ >= last_ && slot.error) std::rethrow_exception(slot.error);  // again: an error is not the end
  if (given_back_ >= last_) return std::nullopt;
  totals_.ready_batches +=
      static_cast<double>(std::count_if(slots_.begin(), slots_.end(), [](const Slot& one) { return one.is_ready; }));
  if (workers_.empty()) {
    lock.unlock();
    run_here();
    lock.lock();
  }
  ready_.wait(lock, [&] { return slot.is_ready; });
  totals_.seconds_waiting += waiting.seconds();
  if (slot.error) {
    last_ = given_back_;
    lock.unlock();
    stop();
    std::rethrow_exception(slot.error);
  }
  ++totals_.batches;
  totals_.samples += slot.indices.size();
  is_taken_ = true;
  return index;
}

std::uint64_t BatchEngine::give_back() {
  const std::lock_guard lock(mutex_);
  if (!is_taken_) return 0;
  is_taken_ = false;
  Slot& slot = slots_[given_back_ % slots_.size()];
  const std::uint64_t samples = slot.indices.size();
  slot = {};
  ++given_back_;
  if (given_back_ == last_) totals_.seconds = stopwatch_.seconds();
  changed_.notify_one();
  return samples;
}

LoaderStatistics BatchEngine::statistics() const {
  const std::lock_guard lock(mutex_);
  LoaderStatistics result = totals_;
  result.workers = options_.workers;
  result.batch_slots = slots_.size();
  if (result.seconds == 0) result.seconds = stopwatch_.seconds();
  for (const auto& worker : by_worker_) result += worker;
  if (result.batches > 0) result.ready_batches /= static_cast<double>(result.batches);
  return result;
}

void BatchEngine::work(std::size_t worker) {
  if (options_.prepare_thread != nullptr) options_.prepare_thread();
  const StopScope stopping(stop_.get_token());
  StageClock clock;
  double waiting = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    const Stopwatch idle;
    changed_.wait(lock, [this] { return is_stopping() || has_samples() || has_room() || is_exhausted(); });
    waiting += idle.seconds();
    if (is_stopping() || is_exhausted()) break;
    clock.resume();
    if (has_samples()) {
      fill_claim(claim(), lock);
    } else {
      open_batch(lock);
    }
    clock.pause();
    by_worker_[worker] = {.read = clock.counts(), .stage_seconds = clock.seconds(), .worker_seconds_waiting = waiting};
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
  by_worker_.front() += LoaderStatistics{.read = clock.counts(), .stage_seconds = clock.seconds()};
}

// These three are called under the mutex.
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

// Called only when every sample of the previous batch has been claimed.
void BatchEngine::open_batch(std::unique_lock<std::mutex>& lock) {
  is_opening_ = true;
  const std::uint64_t batch = opened_;
  const auto index = static_cast<std::size_t>(batch % slots_.size());
  lock.unlock();
  std::vector<std::uint64_t> indices;
  std::exception_ptr error;
  try {
    indices = options_.indices(batch);
    maker_.open(index, indices);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  is_opening_ = false;
  const std::uint64_t samples = error ? 0 : indices.size();
  slots_[index] = {.indices = std::move(indices), .unfinished = samples};
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
  lock.unlock();
  const auto failure = fill_samples(claim);
  lock.lock();
  Slot& slot = slots_[claim.slot];
  if (failure && failure->sample < slot.failed_sample) {
    slot.failed_sample = failure->sample;
    slot.error = failure->error;
    last_ = std::min(last_, opened_);  // the epoch ends with this batch
  }
  slot.unfinished -= claim.end - claim.begin;
  if (slot.unfinished == 0) close_batch(claim.slot, lock);
}

// Fills all samples of the claim even if one fails, so that the first failure of a batch does not depend on the number
// of threads.
std::optional<BatchEngine::Failure> BatchEngine::fill_samples(const Claim& claim) {
  const auto& indices = slots_[claim.slot].indices;
  std::optional<Failure> failure;
  for (std::uint64_t sample = claim.begin; sample < claim.end && !is_stopping(); ++sample) {
    try {
      maker_.fill(claim.slot, sample, indices[sample]);
    } catch (...) {
      if (!failure) failure = Failure{.sample = sample, .error = std::current_exception()};
    }
  }
  return failure;
}

void BatchEngine::close_batch(std::size_t index, std::unique_lock<std::mutex>& lock) {
  Slot& slot = slots_[index];
  if (!slot.error && !is_stopping()) {
    lock.unlock();
    std::exception_ptr error;
    try {
      const StageScope collating(LoaderStage::collate);
      maker_.close(index, slot.indices);
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

void BatchEngine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_.request_stop();
    if (totals_.seconds == 0) totals_.seconds = stopwatch_.seconds();
  }
  changed_.notify_all();
  for (auto& worker : workers_) {
    if (worker.joinable()) worker.join();
  }
}

}  // namespace libtrain::data::detail
