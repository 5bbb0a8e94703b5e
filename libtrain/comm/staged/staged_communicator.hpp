#pragma once

#include <memory>
#include <string>
#include <vector>

#include <libtrain/comm/communicator.hpp>

namespace libtrain {

namespace detail {
class StagedOperation;
}

/// A Communicator for tensors on one device over any that takes host memory: each collective copies its input into a
/// pinned buffer on the host, runs there, and copies the result back. Slow, and right wherever NCCL cannot be used:
/// several ranks on one GPU, `--dist-backend gloo`.
///
/// The call returns when the caller's current stream has reached it and the input is on the host. The result is copied
/// back, on the current stream of the thread that waits, by the first `wait` or `done` that finds it, or by the next
/// call that uses the same memory; after that every stream sees it. A result that nobody asks for stays on the host.
class StagedCommunicator : public Communicator {
 public:
  /// `host` must be used through this object only; `device` carries its index. A CPU device stages as well: for tests.
  StagedCommunicator(std::shared_ptr<Communicator> host, const at::Device& device);

  int rank() const override { return host_->rank(); }
  int world_size() const override { return host_->world_size(); }
  std::string_view backend() const override { return name_; }
  bool supports(const at::Device& device) const override { return device == device_; }

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
  void barrier() override { host_->barrier(); }
  std::vector<std::string> all_gather_bytes(const std::string& bytes) override {
    return host_->all_gather_bytes(bytes);
  }
  std::string broadcast_bytes(const std::string& bytes, int root) override {
    return host_->broadcast_bytes(bytes, root);
  }
  std::shared_ptr<Communicator> split(int color, int key) override;
  at::Tensor allocate(std::int64_t elements, at::ScalarType type) override;
  void abort(const std::string& reason, ExitCode code) noexcept override { host_->abort(reason, code); }

 private:
  /// Host memory of the size and type of `tensor`, when earlier results have arrived in that.
  at::Tensor buffer_for(const at::Tensor& tensor);
  at::Tensor copy_of(const at::Tensor& tensor);
  Work copy_back(Work host_work, const at::Tensor& staging, const at::Tensor& output);

  std::shared_ptr<Communicator> host_;
  at::Device device_;
  std::string name_;
  std::vector<std::shared_ptr<detail::StagedOperation>> unfinished_;
};

}  // namespace libtrain
