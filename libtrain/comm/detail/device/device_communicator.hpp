#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Stream.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/detail/device/call_agreement.hpp>
#include <libtrain/comm/detail/device/collective_operation.hpp>
#include <libtrain/comm/detail/device/device_launcher.hpp>
#include <libtrain/comm/detail/device/device_watchdog.hpp>

namespace libtrain::detail {

/// A Communicator for tensors on one device per rank, over a DeviceLauncher such as NCCL's, and for tensors in host
/// memory, over its control communicator.
///
/// Streams: a collective starts after the work that is in the caller's current stream at the call, and runs in a
/// separate high-priority stream. `Work::wait` makes the waiting thread's current stream wait and returns at once; the
/// result may be used in that stream from then on. `Work::done` returns whether the device has finished. The first
/// collective of a kind connects to the peers and returns when that is done.
///
/// Tensors are held until `wait` is called or, without it, until the watchdog finds the collective finished, within
/// about 100 ms. Their memory is reused in the order of the calling stream.
///
/// Averages of float16 and bfloat16: the sum is divided in the same stream, with float32 arithmetic and one rounding.
/// NCCL's own average multiplies by 1/n rounded to 16 bits, which scales every value wrongly by up to 0.2% unless n is
/// a power of two. The sum may overflow float16 where the average would not: scale such values down before.
///
/// NCCL's minima and maxima ignore NaN. Those of floating types are two collectives therefore, the first of which
/// counts the NaN of each element, in memory as large as input and output.
///
/// 16-bit sums: NCCL rounds to 16 bits after each addition in the ring, unlike the host backends, which accumulate in
/// float32. Widening first would double the network traffic, which is the bottleneck on GPUs; reduce float32 tensors if
/// that rounding matters.
///
/// Tensors in host memory: their collectives run over the control communicator, on its thread, in the order of the
/// calls among themselves; they do not wait for collectives on the device. Both kinds may be mixed, in the same order
/// on all ranks. Errors and records of those on the device name its type.
///
/// Graphs (see is_recordable): while the current stream is recording, collectives become a part of the graph. They are
/// neither watched nor compared between ranks, and have no deadline: record the same collectives on all ranks, after at
/// least one eager collective of each kind. `wait` must be called before the recording ends. A replay that hangs is
/// found by the next eager collective, or by what waits for the stream; errors that the library reports are found
/// within 100 ms.
///
/// Failures: a watchdog detects errors and missed deadlines within about 100 ms and aborts the collectives on the
/// device; later calls and waits throw the first error. A thread that is blocked in the device's runtime then continues
/// with invalid data, so a program that does not call again soon should exit in `on_failure`. If the runtime does not
/// respond, a missed deadline is reported within seconds, and the collectives on the device are not aborted. The
/// tensors of a collective that missed its deadline before it was in the stream are held until the abort has returned.
///
/// End: the destructor meets the peers at a barrier, for at most two seconds, and then closes the library's
/// communicator together with them. If they do not come, it leaves it to the end of the process: closing is collective
/// among the ranks of a host. In all it takes at most ten seconds.
class DeviceCommunicator : public Communicator {
 public:
  /// All ranks of `control` must call this, each with its own device. `control` carries control messages and must not
  /// be used by other code. Throws CommunicationError on all ranks if `connect` cannot connect them within the timeout
  /// of `set_up`, or of `options` if that has none.
  DeviceCommunicator(std::shared_ptr<Communicator> control, ConnectLauncher connect, CommunicatorOptions options,
                     OnFailure on_failure, const CallOptions& set_up = {});
  ~DeviceCommunicator() override;

  int rank() const override { return control_->rank(); }
  int world_size() const override { return control_->world_size(); }
  std::string_view backend() const override { return shared_->launcher->name(); }
  bool supports(const at::Device& device) const override;
  at::Device device() const override { return shared_->launcher->device(); }

  using Communicator::all_reduce;
  using Communicator::reduce;
  Work all_reduce(const at::Tensor& input, const at::Tensor& output, ReduceOp op, const CallOptions& options) override;
  Work reduce(const at::Tensor& input, const at::Tensor& output, int root, ReduceOp op,
              const CallOptions& options) override;
  Work broadcast(const at::Tensor& tensor, int root, const CallOptions& options) override;
  Work all_gather(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) override;
  Work reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                      const CallOptions& options) override;
  Work all_to_all(const at::Tensor& input, const at::Tensor& output, const CallOptions& options) override;

  /// Runs on the host: it does not wait for collectives on the device.
  void barrier(const CallOptions& options) override;
  std::vector<std::string> all_gather_bytes(const std::string& bytes, const CallOptions& options) override;
  std::string broadcast_bytes(const std::string& bytes, int root, const CallOptions& options) override;

  /// The parts have streams of their own, and collectives of several communicators compete for the device: they may
  /// deadlock where ranks call them in different orders. NCCL starts them in the order of the calls, since libtrain
  /// sets NCCL_LAUNCH_ORDER_IMPLICIT=1 unless it is set; drivers older than CUDA 12.3 then run them one after the
  /// other. What remains for the program: all ranks call them in the same order, from one thread per device, and replay
  /// graphs that contain them in the same order.
  std::shared_ptr<Communicator> split(int color, int key, const CallOptions& options) override;

  /// On the device; from 1 MiB on in memory that the library has registered, if it can. A tensor of this memory is
  /// valid after the communicator has been destroyed. It is freed in the order of the current stream of the thread that
  /// drops it last; a program that uses it in another stream must keep it until that stream is through.
  at::Tensor allocate(std::int64_t elements, at::ScalarType type) override;

  std::shared_ptr<const std::string> label_calls(std::shared_ptr<const std::string> label) override {
    return std::exchange(label_, std::move(label));
  }

  /// Also those in host memory and control messages, which have numbers of their own. States and times of those on the
  /// device are at most 100 ms old.
  std::vector<CollectiveRecord> recent_collectives() const override;
  bool is_recordable() const override { return shared_->launcher->can_record(); }
  bool is_recording() const override;
  void on_background_failure(BackgroundFailureListener listener) override;
  void abort(const std::string& reason, ExitCode code) noexcept override;

 private:
  struct Listener;
  using Shared = CollectiveOperation::Shared;

  DeviceCommunicator(std::shared_ptr<Listener> listener, std::shared_ptr<Communicator> control, ConnectLauncher connect,
                     CommunicatorOptions options, const CallOptions& set_up);

  bool is_on_host(const at::Tensor& tensor) const;
  Work launch(const Call& call, const at::Tensor& input, const at::Tensor& output, const CallOptions& options);
  void put_into_stream(const Call& call, const at::Tensor& input, const at::Tensor& output, const Deadline& deadline);
  std::shared_ptr<const ClockReference> clock_reference();
  void remember(std::shared_ptr<CollectiveOperation> operation);
  void compare(const Call& call, const Deadline& deadline);
  Deadline deadline_of(const CallOptions& options) const;
  at::Tensor registered_tensor(std::int64_t elements, at::ScalarType type, std::size_t bytes);
  template <typename Body>
  auto remembering_failure(const Body& body);
  template <typename Body>
  auto over_control(const Body& body);
  template <typename Start>
  Work run_on_host(const Start& start);

  std::shared_ptr<Listener> listener_;  // shared with the parts that split() makes
  std::shared_ptr<Communicator> control_;
  ConnectLauncher connect_;
  CommunicatorOptions options_;
  CallAgreement agreement_;
  std::shared_ptr<FirstFailure> failure_ = std::make_shared<FirstFailure>();
  std::shared_ptr<const Shared> shared_;
  std::shared_ptr<const std::string> label_;
  std::shared_ptr<const ClockReference> reference_;
  std::shared_ptr<CollectiveOperation> last_;  // not recorded
  mutable std::mutex mutex_;                   // of recent_
  std::deque<std::shared_ptr<CollectiveOperation>> recent_;
  DeviceWatchdog watchdog_;  // last: its thread ends first
};

}  // namespace libtrain::detail
