#include <tests/support/fake_gpu/streams.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <thread>
#include <utility>

#include <c10/util/Exception.h>

#include <libtrain/base/splitmix.hpp>
#include <libtrain/base/text.hpp>

#include <tests/support/fake_gpu/fake_gpu.hpp>
#include <tests/support/fake_gpu/memory.hpp>

namespace libtrain::test {

namespace fake {

namespace {

constexpr c10::StreamId kPoolStreams = 32;

struct FakeDevice {
  std::mutex mutex;
  std::deque<std::unique_ptr<FakeStream>> streams;  // by id: the default stream, the two pools, new ones
  std::exception_ptr error;
  std::array<std::atomic<std::uint32_t>, 2> from_pool = {};
};

struct DelaySettings {
  std::atomic<std::int64_t> longest_us = 0;
  std::atomic<std::uint64_t> seed = 0;
};

// Lives as long as the process: threads of streams use it until the end.
struct Runtime {
  std::array<FakeDevice, kFakeGpus> devices;
  DelaySettings delays;
  std::atomic<std::uint64_t> host_synchronizations = 0;
  std::atomic<std::uint64_t> device_operations = 0;
  std::atomic<bool> ending = false;
  std::atomic<int> busy = 0;

  Runtime() {
    for (c10::DeviceIndex index = 0; index < kFakeGpus; ++index) {
      for (c10::StreamId id = 0; id <= 2 * kPoolStreams; ++id) add_stream(index);
    }
    // Work that still runs would use LibTorch's static objects after their destruction.
    std::atexit([] {
      runtime().ending = true;
      for (int tries = 0; tries < 2000 && runtime().busy > 0; ++tries) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }

  FakeStream& add_stream(c10::DeviceIndex index) {
    auto& device = devices[static_cast<std::size_t>(index)];
    const std::lock_guard lock(device.mutex);
    const auto id = static_cast<c10::StreamId>(device.streams.size());
    const c10::Stream handle(c10::Stream::UNSAFE, at::Device(at::kPrivateUse1, index), id);
    return *device.streams.emplace_back(std::make_unique<FakeStream>(handle));
  }

  static Runtime& runtime() {
    static auto* instance = new Runtime;
    return *instance;
  }
};

FakeDevice& device_at(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < kFakeGpus, "There is no fake GPU ", static_cast<int>(index), "; there are ",
              kFakeGpus, ".");
  return Runtime::runtime().devices[static_cast<std::size_t>(index)];
}

struct ThreadState {
  c10::DeviceIndex device = 0;
  std::array<c10::StreamId, kFakeGpus> streams = {};
  int no_synchronization = 0;
};
thread_local ThreadState this_thread;

// Of the stream's thread.
void sleep_at_random(const c10::Stream& stream) {
  auto& delays = Runtime::runtime().delays;
  const auto longest = delays.longest_us.load();
  if (longest == 0) return;
  thread_local std::uint64_t draws = 0;
  const auto key = libtrain::detail::combine_keys(delays.seed, stream.hash());
  const auto bits = libtrain::detail::combine_keys(key, draws++);
  if (bits % 4 != 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds((bits >> 8) % static_cast<std::uint64_t>(longest)));
}

void store_error(c10::DeviceIndex index, const std::string& task) {
  std::string reason = "an exception that is not a std::exception";
  try {
    throw;
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  } catch (const std::exception& error) {
    reason = error.what();
  } catch (...) {
  }
  auto& device = device_at(index);
  const std::lock_guard lock(device.mutex);
  if (device.error) return;
  device.error = std::make_exception_ptr(
      c10::Error({__func__, __FILE__, __LINE__},
                 text("fake GPU error in queued work, reported by a later synchronisation: ", task, ": ", reason)));
}

}  // namespace

void Recording::add(const FakeStream& stream, Task task) {
  const std::lock_guard lock(mutex_);
  operations_[&stream].push_back({std::move(task), seen_[&stream]});
}

RecordedPoint Recording::point_of(const FakeStream& stream) {
  const std::lock_guard lock(mutex_);
  auto point = seen_[&stream];
  point[&stream] = operations_[&stream].size();
  return point;
}

void Recording::wait_for(const FakeStream& stream, const RecordedPoint& point) {
  const std::lock_guard lock(mutex_);
  auto& seen = seen_[&stream];
  for (const auto& [other, count] : point) seen[other] = std::max(seen[other], count);
}

std::optional<std::string> Recording::finish() {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  auto& seen = seen_[origin_];
  for (const auto& [stream, operations] : operations_) {
    if (stream != origin_ && seen[stream] < operations.size()) return operations.back().task.name;
  }
  return {};
}

bool Recording::is_finished() {
  const std::lock_guard lock(mutex_);
  return finished_;
}

void Recording::run(const std::function<std::size_t(std::size_t)>& choose) {
  RecordedPoint done;
  for (;;) {
    std::vector<const FakeStream*> ready;
    for (const auto& [stream, operations] : operations_) {
      const auto next = done[stream];
      if (next == operations.size()) continue;
      const auto& after = operations[next].after;
      const auto has_run = [&](const auto& point) { return done[point.first] >= point.second; };
      if (std::all_of(after.begin(), after.end(), has_run)) ready.push_back(stream);
    }
    if (ready.empty()) return;
    const auto* stream = ready[choose(ready.size())];
    operations_[stream][done[stream]++].task.run();
  }
}

void Mark::pass() {
  time_ = std::chrono::steady_clock::now();
  passed_.store(1, std::memory_order_release);
  passed_.notify_all();
}

bool Mark::is_passed() const {
  TORCH_CHECK(!recording, "An event of a recorded stream cannot be queried, waited for by the host or timed.");
  return passed_.load(std::memory_order_acquire) == 1;
}

void Mark::wait() const {
  TORCH_CHECK(!recording, "An event of a recorded stream cannot be queried, waited for by the host or timed.");
  passed_.wait(0, std::memory_order_acquire);
}

std::chrono::steady_clock::time_point Mark::time() const {
  TORCH_CHECK(is_passed(), "The event has not been passed yet.");
  return time_;
}

// These two with the mutex locked.
void FakeStream::push(Task task) {
  if (!task.internal) ++queued_;
  queue_.push_back(std::move(task));
  if (!started_) {
    started_ = true;
    std::thread([this] { run(); }).detach();
  }
  changed_.notify_all();
}

void FakeStream::leave_finished_recording() {
  if (recording_ && recording_->is_finished()) recording_ = nullptr;
}

void FakeStream::launch(Task task) {
  const std::lock_guard lock(mutex_);
  leave_finished_recording();
  if (recording_) return recording_->add(*this, std::move(task));
  push(std::move(task));
}

std::shared_ptr<Mark> FakeStream::mark() {
  auto mark = std::make_shared<Mark>();
  const std::lock_guard lock(mutex_);
  leave_finished_recording();
  if (recording_) {
    mark->recording = recording_;
    mark->recorded_point = recording_->point_of(*this);
  } else {
    push({"an event", [mark] { mark->pass(); }});
  }
  return mark;
}

void FakeStream::wait_for(const std::shared_ptr<Mark>& mark) {
  const std::lock_guard lock(mutex_);
  leave_finished_recording();
  if (mark->recording) {
    TORCH_CHECK(!mark->recording->is_finished(), "A stream waits for an event of a recording that has ended.");
    TORCH_CHECK(!recording_ || recording_ == mark->recording, "A stream cannot join two recordings.");
    recording_ = mark->recording;
    return recording_->wait_for(*this, mark->recorded_point);
  }
  TORCH_CHECK(!recording_, "A recorded stream waits for an event that is not part of the recording.");
  push({"a wait for an event", [mark] { mark->wait(); }});
}

bool FakeStream::is_idle() {
  const std::lock_guard lock(mutex_);
  leave_finished_recording();
  TORCH_CHECK(!recording_, "A recorded stream cannot be queried.");
  return finished_ == queued_;
}

void FakeStream::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, last = queued_] { return finished_ >= last; });
}

std::shared_ptr<Recording> FakeStream::recording() {
  const std::lock_guard lock(mutex_);
  leave_finished_recording();
  return recording_;
}

void FakeStream::record_into(std::shared_ptr<Recording> recording) {
  const std::lock_guard lock(mutex_);
  recording_ = std::move(recording);
}

void FakeStream::run() {
  auto& runtime = Runtime::runtime();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !queue_.empty() && !runtime.ending; });
    auto task = std::move(queue_.front());
    queue_.pop_front();
    ++runtime.busy;
    lock.unlock();
    sleep_at_random(handle_);
    try {
      task.run();
    } catch (...) {
      store_error(handle_.device_index(), task.name);
    }
    const bool counts = !task.internal;
    task = {};
    --runtime.busy;
    lock.lock();
    if (counts) ++finished_;
    changed_.notify_all();
  }
}

FakeStream& find_stream(const c10::Stream& stream) {
  auto& device = device_at(stream.device_index());
  const std::lock_guard lock(device.mutex);
  return *device.streams.at(static_cast<std::size_t>(stream.id()));
}

FakeStream& current_stream(c10::DeviceIndex device) {
  device_at(device);
  const auto id = this_thread.streams[static_cast<std::size_t>(device)];
  return find_stream(c10::Stream(c10::Stream::UNSAFE, at::Device(at::kPrivateUse1, device), id));
}

FakeStream& stream_from_pool(c10::DeviceIndex device, Pool pool) {
  const auto which = static_cast<std::size_t>(pool);
  const auto turn = device_at(device).from_pool[which]++ % kPoolStreams;
  const auto id = 1 + static_cast<c10::StreamId>(which) * kPoolStreams + turn;
  return find_stream(c10::Stream(c10::Stream::UNSAFE, at::Device(at::kPrivateUse1, device), id));
}

FakeStream& new_stream(c10::DeviceIndex device) {
  device_at(device);
  return Runtime::runtime().add_stream(device);
}

c10::DeviceIndex current_device() {
  return this_thread.device;
}

void set_current_device(c10::DeviceIndex device) {
  device_at(device);
  this_thread.device = device;
}

void set_current_stream(const c10::Stream& stream) {
  find_stream(stream);
  this_thread.streams[static_cast<std::size_t>(stream.device_index())] = stream.id();
}

void synchronize_stream(const c10::Stream& stream) {
  auto& queue = find_stream(stream);
  count_host_synchronization("synchronising a stream", &queue);
  queue.wait_until_idle();
  throw_device_error(stream.device_index());
}

void synchronize_device(c10::DeviceIndex index) {
  count_host_synchronization("synchronising a device", nullptr);
  auto& device = device_at(index);
  std::vector<FakeStream*> streams;
  {
    const std::lock_guard lock(device.mutex);
    for (const auto& stream : device.streams) streams.push_back(stream.get());
  }
  for (auto* stream : streams) {
    TORCH_CHECK(!stream->recording(), "A device cannot be synchronised while one of its streams is recorded.");
    stream->wait_until_idle();
  }
  throw_device_error(index);
}

void synchronize_mark(const Mark& mark, c10::DeviceIndex device) {
  count_host_synchronization("synchronising an event", nullptr);
  mark.wait();
  throw_device_error(device);
}

void throw_device_error(c10::DeviceIndex index) {
  auto& device = device_at(index);
  std::unique_lock lock(device.mutex);
  const auto error = std::exchange(device.error, nullptr);
  lock.unlock();
  if (error) std::rethrow_exception(error);
}

void count_operation() {
  ++Runtime::runtime().device_operations;
}

void count_host_synchronization(const std::string& what, FakeStream* stream) {
  ++Runtime::runtime().host_synchronizations;
  TORCH_CHECK(this_thread.no_synchronization == 0, "A host synchronisation where there must be none: ", what, ".");
  TORCH_CHECK(stream == nullptr || !stream->recording(), "A recorded stream cannot be synchronised: ", what, ".");
}

}  // namespace fake

FakeGpuCounts fake_gpu_counts() {
  auto& runtime = fake::Runtime::runtime();
  return {runtime.host_synchronizations, runtime.device_operations};
}

NoHostSynchronization::NoHostSynchronization() {
  ++fake::this_thread.no_synchronization;
}

NoHostSynchronization::~NoHostSynchronization() {
  --fake::this_thread.no_synchronization;
}

struct BlockedStream::Gate {
  std::atomic<int> open = 0;
};

BlockedStream::BlockedStream(const c10::Stream& stream) : gate_(std::make_shared<Gate>()) {
  fake::find_stream(stream).launch({"a blocked stream", [gate = gate_] { gate->open.wait(0); }});
}

BlockedStream::~BlockedStream() {
  gate_->open = 1;
  gate_->open.notify_all();
}

FakeGpuDelays::FakeGpuDelays(std::uint64_t seed, std::chrono::microseconds longest) {
  auto& delays = fake::Runtime::runtime().delays;
  delays.seed = seed;
  delays.longest_us = longest.count();
}

FakeGpuDelays::~FakeGpuDelays() {
  fake::Runtime::runtime().delays.longest_us = 0;
}

struct FakeGraph::State {
  at::Device device;
  std::shared_ptr<fake::Recording> recording;
  std::shared_ptr<fake::Mark> last_replay;
};

FakeGraph::~FakeGraph() {
  if (!state_) return;
  state_->recording->finish();
  fake::release_memory_of(state_->recording.get(), state_->last_replay);
}

void FakeGraph::begin(const at::Device& device) {
  TORCH_CHECK(!state_, "A FakeGraph records once.");
  auto& origin = fake::current_stream(device.index());
  TORCH_CHECK(!origin.recording(), "The stream is being recorded already.");
  TORCH_CHECK(origin.handle().id() != 0, "The default stream cannot be recorded. Set another one as current stream.");
  state_ = std::make_shared<State>(State{device, std::make_shared<fake::Recording>(origin), nullptr});
  origin.record_into(state_->recording);
}

void FakeGraph::end() {
  TORCH_CHECK(state_ && !state_->recording->is_finished(), "FakeGraph::end() without begin().");
  const auto unjoined = state_->recording->finish();
  TORCH_CHECK(!unjoined, "Recording a FakeGraph: a stream has joined the recording, and the stream that began it has ",
              "not waited for its last operation, ", unjoined.value_or(""), ".");
}

void FakeGraph::replay() {
  TORCH_CHECK(state_ && state_->recording->is_finished(), "FakeGraph::replay() before end().");
  fake::count_operation();
  const auto run = [recording = state_->recording] {
    auto& delays = fake::Runtime::runtime().delays;
    std::uint64_t draws = 0;
    recording->run([&](std::size_t ready) -> std::size_t {
      if (delays.longest_us == 0) return 0;
      return libtrain::detail::combine_keys(delays.seed, draws++) % ready;
    });
  };
  auto& stream = fake::current_stream(state_->device.index());
  stream.launch({"a FakeGraph", run});
  state_->last_replay = stream.mark();
}

}  // namespace libtrain::test
