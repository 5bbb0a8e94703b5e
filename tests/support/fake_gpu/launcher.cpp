#include <tests/support/fake_gpu/launcher.hpp>

#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/nan_to_num.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/first_failure.hpp>
#include <libtrain/comm/detail/tensor_checks.hpp>

#include <tests/support/fake_gpu/fake_gpu.hpp>
#include <tests/support/fake_gpu/memory.hpp>
#include <tests/support/fake_gpu/streams.hpp>

namespace libtrain::test {

namespace {

using detail::Call;
using detail::CallKind;

constexpr CallOptions kUntilAbort{.timeout = std::chrono::hours(24)};

// Like NCCL, whose minima and maxima ignore a NaN.
at::Tensor without_nan(const at::Tensor& values, std::optional<ReduceOp> op) {
  if (!values.is_floating_point() || (op != ReduceOp::minimum && op != ReduceOp::maximum)) return values;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return at::nan_to_num(values, op == ReduceOp::minimum ? kInfinity : -kInfinity, kInfinity, -kInfinity);
}

// What the queued work uses: it may outlive the launcher.
struct Queued {
  explicit Queued(std::shared_ptr<Communicator> communicator) : data(std::move(communicator)) {}

  const std::shared_ptr<Communicator> data;
  detail::FirstFailure failure;
  std::mutex mutex;  // a graph is replayed in another stream than that of the eager collectives

  Work start(const Call& call, void* input, void* output) {
    const auto ranks = static_cast<std::uint64_t>(data->world_size());
    const auto view = [&](void* memory, std::uint64_t count) {
      return at::from_blob(memory, {static_cast<std::int64_t>(count)},
                           at::TensorOptions(detail::scalar_type_of(*call.type)));
    };
    switch (call.kind) {
      case CallKind::all_reduce:
        return data->all_reduce(without_nan(view(input, call.count), call.op), view(output, call.count), *call.op,
                                kUntilAbort);
      case CallKind::reduce:
        return data->reduce(without_nan(view(input, call.count), call.op),
                            output == nullptr ? at::Tensor{} : view(output, call.count), *call.root, *call.op,
                            kUntilAbort);
      case CallKind::broadcast:
        return data->broadcast(view(output, call.count), *call.root, kUntilAbort);
      case CallKind::all_gather:
        return data->all_gather(view(input, call.count), view(output, ranks * call.count), kUntilAbort);
      case CallKind::reduce_scatter:
        return data->reduce_scatter(without_nan(view(input, ranks * call.count), call.op), view(output, call.count),
                                    *call.op, kUntilAbort);
      default:
        return data->all_to_all(view(input, call.count), view(output, call.count), kUntilAbort);
    }
  }

  void run(const Call& call, void* input, void* output) {
    const std::lock_guard lock(mutex);
    if (failure.exists()) return;
    try {
      start(call, input, output).wait();
    } catch (...) {
      failure.set(std::current_exception());
    }
  }
};

// As NCCL does with NCCL_LAUNCH_ORDER_IMPLICIT=1: collectives of all communicators of a device that one graph records
// run in the order of the calls. A replay runs one operation at a time: ranks that chose those of two communicators in
// different orders would wait for each other.
void launch_in_order(const at::Device& device, fake::FakeStream& stream, fake::Task task) {
  struct Last {
    std::weak_ptr<fake::Recording> recording;
    fake::RecordedPoint point;
  };
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, Last> last_of;
  const auto recording = stream.recording();
  if (recording == nullptr) return stream.launch(std::move(task));
  const std::lock_guard lock(mutex);
  auto& last = last_of[device.index()];
  if (last.recording.lock() == recording) {
    const auto mark = std::make_shared<fake::Mark>();
    mark->recording = recording;
    mark->recorded_point = last.point;
    stream.wait_for(mark);
  }
  stream.launch(std::move(task));
  last = {recording, stream.mark()->recorded_point};
}

class FakeGpuLauncher : public detail::DeviceLauncher {
 public:
  FakeGpuLauncher(std::shared_ptr<Communicator> data, const at::Device& device)
      : queued_(std::make_shared<Queued>(std::move(data))), device_(device) {}

  std::string_view name() const override { return "fake_gpu"; }
  at::Device device() const override { return device_; }

  void launch(const Call& call, const void* input, void* output, const c10::Stream& stream,
              const Deadline& /*deadline*/) override {
    queued_->failure.throw_if_any();
    fake::count_operation();
    launch_in_order(device_, fake::find_stream(stream),
                    {to_string(call), [queued = queued_, call, in = fake::kernel_address(input),
                                       out = fake::kernel_address(output)] { queued->run(call, in, out); }});
  }

  bool can_record() const override { return true; }
  bool is_recording(const c10::Stream& stream) const override {
    return fake::find_stream(stream).recording() != nullptr;
  }

  std::string asynchronous_error() override { return queued_->failure.reason(); }
  void abort() noexcept override {
    queued_->failure.set("aborted");
    queued_->data->abort("aborted", ExitCode::communication);
  }
  void close() noexcept override {}
  void leave() noexcept override {}

 private:
  std::shared_ptr<Queued> queued_;
  at::Device device_;
};

}  // namespace

detail::ConnectLauncher fake_gpu_launcher(const at::Device& device) {
  return [device](Communicator& control, const CallOptions& set_up) {
    return std::make_shared<FakeGpuLauncher>(control.split(0, control.rank(), set_up), device);
  };
}

}  // namespace libtrain::test
