#include <libtrain/comm/detail/device/device_communicator.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/tensor_checks.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kMeetTime{2000};
constexpr std::chrono::milliseconds kMaxUseAfterDrop{1000};
constexpr std::chrono::seconds kReferenceAge{10};
constexpr std::size_t kRemembered = 100;
// Registered memory takes whole pages of the device, of 2 MiB, and speeds up long messages.
constexpr std::size_t kMinRegisteredBytes = 1 << 20;

c10::Stream high_priority_stream(const at::Device& device) {
  const c10::impl::VirtualGuardImpl guard{device.type()};
  return device.is_cpu() ? guard.getStream(device) : guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}

// For a step of a call: the time left until the call's deadline.
CallOptions until(const Deadline& deadline) {
  return {.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.remaining())};
}

std::size_t elements_of(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel());
}

std::string text_of(const std::shared_ptr<const std::string>& label) {
  return label ? *label : std::string{};
}

// Libraries scale 16-bit elements by a rounded 1/n.
bool is_divided_here(const Call& call) {
  return call.op == ReduceOp::average && (call.type == DataType::float16 || call.type == DataType::bfloat16);
}

// Libraries ignore a NaN where another rank has a number.
bool loses_nan(const Call& call) {
  return (call.op == ReduceOp::minimum || call.op == ReduceOp::maximum) && is_floating(*call.type);
}

Call with_op(Call call, ReduceOp op) {
  call.op = op;
  return call;
}

// A collective of host memory, whose failure is a failure of the device's communicator, too: its watchdog finds it.
class HostOperation : public Pending {
 public:
  HostOperation(Work work, std::shared_ptr<FirstFailure> failure)
      : work_(std::move(work)), failure_(std::move(failure)) {}

  void wait() override {
    try {
      work_.wait();
    } catch (...) {
      failure_->set(std::current_exception());
      throw;
    }
  }
  bool done() override { return work_.done(); }
  std::optional<WorkTimes> times() override { return work_.times(); }

 private:
  Work work_;
  std::shared_ptr<FirstFailure> failure_;
};

// Registered memory whose tensor has been dropped.
class DroppedMemory : public RetiredMemory {
 public:
  DroppedMemory(std::shared_ptr<DeviceMemory> memory, std::shared_ptr<const DeviceLauncher> launcher)
      : memory_(std::move(memory)), launcher_(std::move(launcher)) {
    const auto stream = current_stream(launcher_->device());
    // What a graph uses may be used again whenever it is replayed.
    is_used_by_graph_ = launcher_->is_recording(stream);
    if (!is_used_by_graph_) last_use_.emplace(stream);
  }

  ~DroppedMemory() override {
    if (becomes_unused()) return;
    // Leaked: the device would fail, or overwrite other data in this memory.
    static_cast<void>(new std::shared_ptr{std::move(memory_)});
  }

  bool is_unused() override {
    return !is_used_by_graph_ && !launcher_->is_launching() && launcher_->has_passed(*last_use_);
  }

 private:
  bool becomes_unused() noexcept {
    try {
      const auto deadline = Deadline::after(kMaxUseAfterDrop);
      while (!is_used_by_graph_ && !is_unused()) {
        if (deadline.expired()) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return !is_used_by_graph_;
    } catch (...) {
      return false;  // the device has failed
    }
  }

  std::shared_ptr<DeviceMemory> memory_;
  std::shared_ptr<const DeviceLauncher> launcher_;
  std::optional<StreamMark> last_use_;
  bool is_used_by_graph_ = false;
};

}  // namespace

// Where failures without a waiting call are reported: first to the listener, which may write records, then to the owner
// of the communicator, who may end the process.
struct DeviceCommunicator::Listener {
  explicit Listener(OnFailure on_failure) : then(std::move(on_failure)) {}

  std::mutex mutex;
  BackgroundFailureListener first;
  const OnFailure then;

  void report(const std::string& reason) {
    std::unique_lock lock(mutex);
    const auto listener = first;
    lock.unlock();
    try {
      if (listener) listener(reason);
    } catch (...) {
      // The failure must still be reported.
    }
    if (then) then(reason);
  }
};

template <typename Body>
auto DeviceCommunicator::remembering_failure(const Body& body) {
  failure_->throw_if_any();
  try {
    return body();
  } catch (const UsageError&) {
    throw;  // the communicator is still usable
  } catch (...) {
    watchdog_.fail(std::current_exception());
    failure_->throw_if_any();
    throw;
  }
}

// Calls of the control communicator that the user has made have the user's label.
template <typename Body>
auto DeviceCommunicator::over_control(const Body& body) {
  return remembering_failure([&] {
    const CallPurpose labelled{*control_, label_};
    return body();
  });
}

template <typename Start>
Work DeviceCommunicator::run_on_host(const Start& start) {
  return over_control([&] { return Work{std::make_shared<HostOperation>(start(), failure_)}; });
}

DeviceCommunicator::DeviceCommunicator(std::shared_ptr<Communicator> control, ConnectLauncher connect,
                                       CommunicatorOptions options, OnFailure on_failure, const CallOptions& set_up)
    : DeviceCommunicator(std::make_shared<Listener>(std::move(on_failure)), std::move(control), std::move(connect),
                         options, set_up) {}

DeviceCommunicator::DeviceCommunicator(std::shared_ptr<Listener> listener, std::shared_ptr<Communicator> control,
                                       ConnectLauncher connect, CommunicatorOptions options, const CallOptions& set_up)
    : listener_(std::move(listener)),
      control_(std::move(control)),
      connect_(std::move(connect)),
      options_(options),
      agreement_(control_),
      shared_([&] {
        auto launcher = connect_(*control_, {.timeout = set_up.timeout.value_or(options.timeout)});
        const auto stream = high_priority_stream(launcher->device());
        return std::make_shared<const Shared>(Shared{std::move(launcher), failure_, stream});
      }()),
      watchdog_(shared_->launcher, failure_,
                [listener = listener_](const std::string& reason) { listener->report(reason); }) {}

DeviceCommunicator::~DeviceCommunicator() {
  if (failure_->exists()) return;
  // The peers may be in other calls, and would report a mismatch before this rank reports its exception.
  if (std::uncaught_exceptions() > 0) {
    watchdog_.leave_at_end();
    return;
  }
  try {
    const CallPurpose purpose{*control_, "closing the communicator"};
    control_->barrier({.timeout = std::min(drain_time(), kMeetTime)});
  } catch (...) {
    watchdog_.leave_at_end();
  }
}

bool DeviceCommunicator::supports(const at::Device& device) const {
  return device == shared_->launcher->device() || device.is_cpu();
}

// Tests take a CPU for the device.
bool DeviceCommunicator::is_on_host(const at::Tensor& tensor) const {
  return tensor.defined() && tensor.device().is_cpu() && !shared_->launcher->device().is_cpu();
}

Work DeviceCommunicator::all_reduce(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                    const CallOptions& options) {
  if (is_on_host(input)) return run_on_host([&] { return control_->all_reduce(input, output, op, options); });
  const auto type = checked_in_out(*this, input, output, "all_reduce");
  check_op(type, op, "all_reduce");
  return launch({CallKind::all_reduce, elements_of(input), type, op}, input, output, options);
}

Work DeviceCommunicator::reduce(const at::Tensor& input, const at::Tensor& output, int root, ReduceOp op,
                                const CallOptions& options) {
  if (is_on_host(input)) return run_on_host([&] { return control_->reduce(input, output, root, op, options); });
  check_root(*this, root, "reduce");
  const bool is_root = rank() == root;
  const auto type = is_root ? checked_in_out(*this, input, output, "reduce") : checked_type(*this, input, "reduce");
  check_op(type, op, "reduce");
  return launch({CallKind::reduce, elements_of(input), type, op, root}, input, is_root ? output : at::Tensor{},
                options);
}

Work DeviceCommunicator::broadcast(const at::Tensor& tensor, int root, const CallOptions& options) {
  if (is_on_host(tensor)) return run_on_host([&] { return control_->broadcast(tensor, root, options); });
  const auto type = checked_type(*this, tensor, "broadcast");
  check_root(*this, root, "broadcast");
  return launch({.kind = CallKind::broadcast, .count = elements_of(tensor), .type = type, .root = root}, tensor, tensor,
                options);
}

Work DeviceCommunicator::all_gather(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  if (is_on_host(input)) return run_on_host([&] { return control_->all_gather(input, output, options); });
  const auto type = checked_gather(*this, input, output, "all_gather");
  return launch({CallKind::all_gather, elements_of(input), type}, input, output, options);
}

Work DeviceCommunicator::reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                        const CallOptions& options) {
  if (is_on_host(input)) return run_on_host([&] { return control_->reduce_scatter(input, output, op, options); });
  const auto type = checked_gather(*this, output, input, "reduce_scatter");
  check_op(type, op, "reduce_scatter");
  return launch({CallKind::reduce_scatter, elements_of(output), type, op}, input, output, options);
}

Work DeviceCommunicator::all_to_all(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) {
  if (is_on_host(input)) return run_on_host([&] { return control_->all_to_all(input, output, options); });
  const auto type = checked_parts(*this, input, output, "all_to_all");
  return launch({CallKind::all_to_all, elements_of(input), type}, input, output, options);
}

void DeviceCommunicator::barrier(const CallOptions& options) {
  compare({.kind = CallKind::barrier}, deadline_of(options));
}

std::vector<std::string> DeviceCommunicator::all_gather_bytes(const std::string& bytes, const CallOptions& options) {
  const auto deadline = deadline_of(options);
  compare({.kind = CallKind::all_gather_bytes}, deadline);
  return over_control([&] { return control_->all_gather_bytes(bytes, until(deadline)); });
}

std::string DeviceCommunicator::broadcast_bytes(const std::string& bytes, int root, const CallOptions& options) {
  check_root(*this, root, "broadcast_bytes");
  const auto deadline = deadline_of(options);
  compare({.kind = CallKind::broadcast_bytes, .root = root}, deadline);
  return over_control([&] { return control_->broadcast_bytes(bytes, root, until(deadline)); });
}

std::shared_ptr<Communicator> DeviceCommunicator::split(int color, int key, const CallOptions& options) {
  check_color(color);
  const auto deadline = deadline_of(options);
  compare({.kind = CallKind::split}, deadline);
  return over_control([&] {
    auto control = control_->split(color, key, until(deadline));
    return std::shared_ptr<DeviceCommunicator>(
        new DeviceCommunicator(listener_, std::move(control), connect_, options_, until(deadline)));
  });
}

at::Tensor DeviceCommunicator::allocate(std::int64_t elements, at::ScalarType type) {
  failure_->throw_if_any();
  const auto bytes = checked_bytes(elements, type);
  if (bytes >= kMinRegisteredBytes && !is_recording()) {
    if (auto tensor = registered_tensor(elements, type, bytes); tensor.defined()) return tensor;
  }
  return at::zeros({elements}, at::TensorOptions(type).device(shared_->launcher->device()));
}

at::Tensor DeviceCommunicator::registered_tensor(std::int64_t elements, at::ScalarType type, std::size_t bytes) {
  const auto& launcher = shared_->launcher;
  std::shared_ptr<DeviceMemory> memory = launcher->allocate(bytes);
  if (memory == nullptr) return {};
  auto* const data = memory->data();
  const auto drop = [memory = std::move(memory), launcher, retire = watchdog_.retire()](void*) mutable {
    try {
      retire(std::make_shared<DroppedMemory>(std::move(memory), std::move(launcher)));
    } catch (...) {
      // The device has failed, or memory has run out: the memory is not freed.
      if (memory) static_cast<void>(new (std::nothrow) std::shared_ptr{std::move(memory)});
    }
  };
  const auto device = launcher->device();
  auto tensor = at::from_blob(data, {elements}, drop, at::TensorOptions(type).device(device), device);
  return tensor.zero_();
}

std::vector<CollectiveRecord> DeviceCommunicator::recent_collectives() const {
  std::deque<std::shared_ptr<CollectiveOperation>> operations;
  {
    const std::lock_guard lock(mutex_);
    operations = recent_;
  }
  auto records = control_->recent_collectives();
  for (const auto& operation : operations) records.push_back(operation->record());
  std::ranges::stable_sort(records, {}, [](const CollectiveRecord& record) { return record.times.called; });
  if (records.size() > kRemembered) records.erase(records.begin(), records.end() - kRemembered);
  return records;
}

bool DeviceCommunicator::is_recording() const {
  return shared_->launcher->is_recording(current_stream(shared_->launcher->device()));
}

void DeviceCommunicator::on_background_failure(BackgroundFailureListener listener) {
  const std::lock_guard lock(listener_->mutex);
  listener_->first = std::move(listener);
}

void DeviceCommunicator::abort(const std::string& reason, ExitCode code) noexcept {
  try {
    watchdog_.fail(std::make_exception_ptr(CommunicationError(reason)));
  } catch (...) {
    // Out of memory: the peers are notified nevertheless.
  }
  control_->abort(reason, code);
}

Work DeviceCommunicator::launch(const Call& call, const at::Tensor& input, const at::Tensor& output,
                                const CallOptions& options) {
  const auto deadline = deadline_of(options);
  return remembering_failure([&] {
    const auto device = shared_->launcher->device();
    const auto calling = current_stream(device);
    const bool is_recorded = shared_->launcher->is_recording(calling);
    const auto number = is_recorded ? agreement_.next_uncompared_collective()
                                    : agreement_.next_collective(call, until(deadline), text_of(label_));
    const c10::DeviceGuard on_device(device);
    std::vector<at::Tensor> tensors{input};
    if (output.defined() && !output.is_same(input)) tensors.push_back(output);
    const auto operation = std::make_shared<CollectiveOperation>(
        DeviceOperation::Identity{call, c10::DeviceTypeName(device.type(), /*lower_case=*/true), number, label_},
        deadline, shared_, std::move(tensors), calling, is_recorded);
    remember(operation);
    try {
      const auto reference = is_recorded ? nullptr : clock_reference();
      StreamMark(calling).block(shared_->stream);
      operation->begin(reference);
      if (input.numel() > 0) put_into_stream(call, input, output, deadline);
      operation->end();
    } catch (const std::exception& error) {
      // It may still reach the stream: the watchdog holds its tensors until the abort has returned.
      watchdog_.watch(operation);
      throw CommunicationError(text(operation->name(), " failed: ", shared_->launcher->describe(error)));
    }
    if (!is_recorded) {
      watchdog_.watch(operation);
      last_ = operation;
    }
    return Work{operation};
  });
}

void DeviceCommunicator::put_into_stream(const Call& call, const at::Tensor& input, const at::Tensor& output,
                                         const Deadline& deadline) {
  // Below autograd, like the collective itself.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::StreamGuard in_stream(shared_->stream);
  const auto put = [&](const Call& part, const at::Tensor& from, const at::Tensor& to) {
    shared_->launcher->launch(part, from.const_data_ptr(), to.defined() ? to.mutable_data_ptr() : nullptr,
                              shared_->stream, deadline);
  };
  at::Tensor nan_counts;
  if (loses_nan(call)) {
    const auto is_nan = at::isnan(input).to(input.scalar_type());
    nan_counts = output.defined() ? at::empty_like(output) : output;
    put(with_op(call, ReduceOp::sum), is_nan, nan_counts);
  }
  const bool is_divided = is_divided_here(call);
  put(is_divided ? with_op(call, ReduceOp::sum) : call, input, output);
  if (!output.defined()) return;
  if (is_divided) output.div_(world_size());
  if (nan_counts.defined()) output.masked_fill_(nan_counts.ne(0), std::numeric_limits<double>::quiet_NaN());
}

// The stream must be idle, so that it passes the mark at once. A float, as which the device gives times, has few digits
// for long ones, and the clocks drift apart: the reference is replaced now and then.
std::shared_ptr<const ClockReference> DeviceCommunicator::clock_reference() {
  const auto now = WorkTimes::Clock::now();
  const bool is_idle = !last_ || last_->is_known_to_have_ended();
  if (!reference_ || (is_idle && now - reference_->time > kReferenceAge)) {
    reference_ =
        std::make_shared<const ClockReference>(StreamMark{shared_->stream, c10::EventFlag::BACKEND_DEFAULT}, now);
  }
  return reference_;
}

void DeviceCommunicator::remember(std::shared_ptr<CollectiveOperation> operation) {
  std::shared_ptr<CollectiveOperation> forgotten;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  recent_.push_back(std::move(operation));
  if (recent_.size() <= kRemembered) return;
  forgotten = std::move(recent_.front());
  recent_.pop_front();
}

void DeviceCommunicator::compare(const Call& call, const Deadline& deadline) {
  remembering_failure([&] { agreement_.compare(call, until(deadline), text_of(label_)); });
}

Deadline DeviceCommunicator::deadline_of(const CallOptions& options) const {
  return Deadline::after(options.timeout.value_or(options_.timeout));
}

}  // namespace libtrain::detail
