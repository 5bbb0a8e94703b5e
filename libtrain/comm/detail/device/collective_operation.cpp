#include <libtrain/comm/detail/device/collective_operation.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

WorkTimes::Clock::duration clock_duration(double milliseconds) {
  return std::chrono::duration_cast<WorkTimes::Clock::duration>(
      std::chrono::duration<double, std::milli>(milliseconds));
}

}  // namespace

CollectiveOperation::CollectiveOperation(Identity identity, const Deadline& deadline,
                                         std::shared_ptr<const Shared> shared, std::vector<at::Tensor> tensors,
                                         const c10::Stream& calling_stream, bool is_recorded)
    : DeviceOperation(std::move(identity), deadline),
      shared_(std::move(shared)),
      calling_stream_(calling_stream),
      is_recorded_(is_recorded),
      tensors_(std::move(tensors)) {
  times_.called = WorkTimes::Clock::now();
}

CollectiveOperation::~CollectiveOperation() {
  try {
    if (is_recorded_ || !is_known_to_have_ended()) protect(take_tensors());
  } catch (...) {
    // The device has failed, or its library has been unloaded: no collective is running.
  }
}

void CollectiveOperation::begin(std::shared_ptr<const ClockReference> reference) {
  if (is_recorded_) return;
  reference_ = std::move(reference);
  began_.emplace(shared_->stream, c10::EventFlag::BACKEND_DEFAULT);
}

void CollectiveOperation::end() {
  ended_.emplace(shared_->stream, is_recorded_ ? c10::EventFlag::PYTORCH_DEFAULT : c10::EventFlag::BACKEND_DEFAULT);
  if (!is_recorded_) return;
  const std::lock_guard lock(mutex_);
  times_.began = times_.ended = WorkTimes::Clock::now();
  state_ = State::done;
}

void CollectiveOperation::wait() {
  shared_->failure->throw_if_any();
  const auto waiting = current_stream(shared_->launcher->device());
  if (shared_->launcher->is_recording(waiting) != is_recorded_) {
    throw UsageError(is_recorded_ ? text(what(),
                                         " was recorded into a graph, but is waited for outside of the recording. "
                                         "Call wait() in the recording stream before the recording ends.")
                                  : text(what(),
                                         " was called before the recording of a graph, but is waited for in it. "
                                         "Call wait() before the recording begins."));
  }
  try {
    ended_->block(waiting);
  } catch (const std::exception& error) {
    throw CommunicationError(text(name(), " failed: ", shared_->launcher->describe(error)));
  }
  auto tensors = take_tensors();
  if (waiting != calling_stream_) protect(std::move(tensors));
}

bool CollectiveOperation::done() {
  if (shared_->failure->exists()) return true;
  return !is_recorded_ && has_ended();
}

std::optional<WorkTimes> CollectiveOperation::times() {
  if (is_recorded_ || !has_ended() || state_ == State::failed) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return times_;
}

bool CollectiveOperation::has_ended() {
  if (is_known_to_have_ended()) return true;
  if (!ended_) return false;
  if (shared_->launcher->has_passed(*ended_)) {
    note_end();
    return true;
  }
  if (state_ == State::queued && began_ && shared_->launcher->has_passed(*began_)) note_begin();
  return false;
}

void CollectiveOperation::release() noexcept {
  take_tensors();
}

void CollectiveOperation::note_abort() noexcept {
  try {
    if (!ended_) ended_.emplace(shared_->stream, c10::EventFlag::BACKEND_DEFAULT);
  } catch (...) {
    // The device has failed: the tensors are held.
  }
}

CollectiveRecord CollectiveOperation::record() const {
  CollectiveRecord record{.sequence = sequence(), .what = what(), .state = state_};
  if (is_recorded_) record.what += " (recorded into a graph)";
  if (!is_known_to_have_ended() && shared_->failure->exists()) record.state = State::failed;
  const std::lock_guard lock(mutex_);
  record.times = times_;
  return record;
}

void CollectiveOperation::note_begin() {
  const auto since = shared_->launcher->milliseconds_between(reference_->mark, *began_);
  const std::lock_guard lock(mutex_);
  times_.began = std::max(times_.called, reference_->time + clock_duration(since));
  auto queued = State::queued;
  state_.compare_exchange_strong(queued, State::running);
}

// The time between two marks is a float: for the end, which may be long after the reference, it is less exact than for
// the duration.
void CollectiveOperation::note_end() {
  const bool has_failed = shared_->failure->exists();
  WorkTimes::Clock::time_point ended = WorkTimes::Clock::now();
  WorkTimes::Clock::duration running{};
  if (began_) {
    running = clock_duration(shared_->launcher->milliseconds_between(*began_, *ended_));
    ended = std::min(
        ended, reference_->time + clock_duration(shared_->launcher->milliseconds_between(reference_->mark, *ended_)));
  }
  const std::lock_guard lock(mutex_);
  if (is_known_to_have_ended()) return;
  times_.ended = std::max(ended, times_.called + running);
  times_.began = times_.ended - running;
  state_ = has_failed ? State::failed : State::done;
}

std::vector<at::Tensor> CollectiveOperation::take_tensors() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(tensors_, {});
}

// The allocator does not reuse their memory before the communication stream has passed its present end.
void CollectiveOperation::protect(std::vector<at::Tensor> tensors) const {
  if (shared_->stream.device().is_cpu()) return;
  for (const auto& tensor : tensors) tensor.record_stream(shared_->stream);
}

}  // namespace libtrain::detail
