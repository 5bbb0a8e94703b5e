#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/detail/staged/staged_operation.hpp>
#include <libtrain/comm/detail/staged/staging_pool.hpp>

namespace libtrain::detail {

/// A Communicator for tensors on one device over a communicator for host memory: each collective copies its input into
/// a page-locked buffer of the host communicator, runs there, and copies the result back. Slower than NCCL, for cases
/// in which NCCL cannot be used: several ranks on one GPU, `--dist-backend gloo`.
///
/// The call returns when the caller's current stream has reached it and the input is on the host; its timeout starts
/// then. The result is copied back, after the work that the caller's stream had at the call, in the current stream of
/// the thread that first waits for it, finds it done, or makes another call after the host has finished it.
/// `Work::wait` makes the waiting thread's current stream wait for that copy; `Work::done` returns whether the copy has
/// finished.
///
/// Tensors in host memory go to the host communicator as they are, in the order of the calls.
///
/// All-reduces, reduces and broadcasts of more than 4 MiB go through the host in pieces of that size, each a separate
/// collective there: one is copied while the next is reduced.
class StagedCommunicator : public Communicator {
 public:
  /// Only this object may use `host`; `device` has an index. A CPU device is supported for tests.
  StagedCommunicator(std::shared_ptr<Communicator> host, const at::Device& device);

  int rank() const override { return host_->rank(); }
  int world_size() const override { return host_->world_size(); }
  std::string_view backend() const override { return name_; }
  bool supports(const at::Device& device) const override { return device == device_ || device.is_cpu(); }
  at::Device device() const override { return device_; }

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
  void barrier(const CallOptions& options) override { host_->barrier(options); }
  std::vector<std::string> all_gather_bytes(const std::string& bytes, const CallOptions& options) override {
    return host_->all_gather_bytes(bytes, options);
  }
  std::string broadcast_bytes(const std::string& bytes, int root, const CallOptions& options) override {
    return host_->broadcast_bytes(bytes, root, options);
  }
  std::shared_ptr<Communicator> split(int color, int key, const CallOptions& options) override;
  at::Tensor allocate(std::int64_t elements, at::ScalarType type) override;
  std::shared_ptr<const std::string> label_calls(std::shared_ptr<const std::string> label) override {
    return host_->label_calls(std::move(label));
  }
  std::vector<CollectiveRecord> recent_collectives() const override { return host_->recent_collectives(); }
  void abort(const std::string& reason, ExitCode code) noexcept override { host_->abort(reason, code); }

 private:
  using HostCall = std::function<Work(const StagedPiece& piece)>;

  bool is_on_host(const at::Tensor& tensor) const;

  /// Makes the pending copies of finished earlier calls, and waits for calls that write to memory of these tensors.
  void settle(const at::Tensor& input, const at::Tensor& output);

  /// For elementwise collectives, in place on the host. For undefined tensors see StagedPiece.
  Work run_in_pieces(const at::Tensor& input, const at::Tensor& output, const HostCall& call);

  Work run(std::vector<StagedPiece> pieces, StagingBuffers buffers, const at::Tensor& output, const HostCall& call);

  std::shared_ptr<Communicator> host_;
  at::Device device_;
  std::string name_;
  StagingPool pool_;
  std::vector<std::shared_ptr<StagedOperation>> unfinished_;
};

}  // namespace libtrain::detail
