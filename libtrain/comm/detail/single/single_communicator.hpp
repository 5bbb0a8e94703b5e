#pragma once

#include <functional>
#include <utility>

#include <c10/core/Stream.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/detail/first_failure.hpp>

namespace libtrain::detail {

/// A group of one rank: every collective is the identity. Accepts tensors on any device; copies run in the current
/// stream of the calling thread.
class SingleCommunicator : public Communicator {
 public:
  /// Whether a stream is recording a graph.
  using IsRecording = std::function<bool(const c10::Stream& stream)>;

  /// `allocate` returns memory on `device`. `is_recording` is for streams of the device; null if it has no graphs.
  explicit SingleCommunicator(const at::Device& device = at::kCPU, IsRecording is_recording = {})
      : device_(device), is_recording_(std::move(is_recording)) {}

  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  std::string_view backend() const override { return "single"; }
  bool supports(const at::Device&) const override { return true; }
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
  void barrier(const CallOptions& options) override;
  std::vector<std::string> all_gather_bytes(const std::string& bytes, const CallOptions& options) override;
  std::string broadcast_bytes(const std::string& bytes, int root, const CallOptions& options) override;
  std::shared_ptr<Communicator> split(int color, int key, const CallOptions& options) override;
  at::Tensor allocate(std::int64_t elements, at::ScalarType type) override;
  bool is_recordable() const override { return is_recording_ != nullptr; }
  bool is_recording() const override;
  void abort(const std::string& reason, ExitCode code) noexcept override;

 private:
  void check_alive() const;
  Work copy(const at::Tensor& input, const at::Tensor& output);

  at::Device device_;
  IsRecording is_recording_;
  FirstFailure failure_;
};

}  // namespace libtrain::detail
