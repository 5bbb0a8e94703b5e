#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/detail/nccl/call_agreement.hpp>
#include <libtrain/comm/detail/nccl/nccl_comm.hpp>
#include <libtrain/comm/detail/nccl/nccl_watchdog.hpp>

namespace libtrain::detail {

/// A Communicator for tensors on one GPU per rank, over NCCL.
///
/// Streams: a collective starts after the work that is in the caller's current stream at the call, and runs in a
/// separate high-priority stream. `Work::wait` makes the waiting thread's current stream wait and returns at once; the
/// result may be used in that stream from then on. `Work::done` returns whether the GPU has finished. The first
/// collective of a kind connects to the peers and returns when that is done.
///
/// Failures: a watchdog detects errors and missed deadlines within about 100 ms and aborts the collectives on the GPU;
/// later calls and waits throw the first error. A thread that is blocked in the CUDA runtime then continues with
/// invalid data, so a program that does not call again soon should exit in `on_failure`. If the CUDA runtime does not
/// respond, a missed deadline is reported within seconds, and the collectives on the GPU are not aborted.
///
/// 16-bit sums: NCCL rounds to 16 bits after each addition in the ring, unlike the host backends, which accumulate in
/// float32. Widening first would double the network traffic, which is the bottleneck on GPUs; reduce float32 tensors if
/// that rounding matters.
class NcclCommunicator : public Communicator {
 public:
  /// All ranks of `control` must call this, each with its own GPU. `control` carries control messages and must not be
  /// used by other code. Throws CommunicationError on all ranks if NCCL cannot connect them within the timeout of
  /// `set_up`, or of `options` if that has none.
  NcclCommunicator(std::shared_ptr<Communicator> control, const at::Device& device, CommunicatorOptions options,
                   OnFailure on_failure, const CallOptions& set_up = {});

  int rank() const override { return control_->rank(); }
  int world_size() const override { return control_->world_size(); }
  std::string_view backend() const override { return "nccl"; }
  bool supports(const at::Device& device) const override { return device == stream_.device(); }

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

  /// Runs on the host: it does not wait for collectives on the GPUs.
  void barrier(const CallOptions& options) override;
  std::vector<std::string> all_gather_bytes(const std::string& bytes, const CallOptions& options) override;
  std::string broadcast_bytes(const std::string& bytes, int root, const CallOptions& options) override;
  std::shared_ptr<Communicator> split(int color, int key, const CallOptions& options) override;

  /// Ordinary device memory.
  at::Tensor allocate(std::int64_t elements, at::ScalarType type) override;
  std::shared_ptr<const std::string> label_calls(std::shared_ptr<const std::string> label) override {
    return control_->label_calls(std::move(label));
  }
  void abort(const std::string& reason, ExitCode code) noexcept override;

 private:
  using Calls = std::function<ncclResult_t(ncclComm_t comm, cudaStream_t stream)>;

  Work launch(const Call& call, std::vector<at::Tensor> tensors, const CallOptions& options, const Calls& calls);
  void compare(const Call& call, const Deadline& deadline);
  Deadline deadline_of(const CallOptions& options) const;
  template <typename Body>
  auto remembering_failure(const Body& body);

  std::shared_ptr<Communicator> control_;
  CommunicatorOptions options_;
  OnFailure on_failure_;
  c10::cuda::CUDAStream stream_;
  c10::cuda::CUDAEvent called_;
  CallAgreement agreement_;
  std::shared_ptr<NcclComm> comm_;
  std::shared_ptr<FirstFailure> failure_ = std::make_shared<FirstFailure>();
  NcclWatchdog watchdog_;  // last: its thread ends first
};

}  // namespace libtrain::detail
