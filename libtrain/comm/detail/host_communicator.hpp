#pragma once

#include <memory>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/detail/communication_thread.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

/// A Communicator for tensors in host memory over any HostTransport, with its own communication thread, so that
/// collectives run while the caller computes.
class HostCommunicator : public Communicator {
 public:
  HostCommunicator(std::unique_ptr<HostTransport> transport, CommunicatorOptions options);

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  std::string_view backend() const override;
  bool supports(const at::Device& device) const override;

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
  void barrier(const CallOptions& options) override;
  std::vector<std::string> all_gather_bytes(const std::string& bytes, const CallOptions& options) override;
  std::string broadcast_bytes(const std::string& bytes, int root, const CallOptions& options) override;
  std::shared_ptr<Communicator> split(int color, int key, const CallOptions& options) override;
  at::Tensor allocate(std::int64_t elements, at::ScalarType type) override;
  std::shared_ptr<const std::string> label_calls(std::shared_ptr<const std::string> label) override {
    return thread_.label_calls(std::move(label));
  }
  std::vector<CollectiveRecord> recent_collectives() const override { return thread_.recent(); }
  void abort(const std::string& reason, ExitCode code) noexcept override;

 private:
  int rank_;
  int world_size_;
  CommunicationThread thread_;
};

}  // namespace libtrain::detail
