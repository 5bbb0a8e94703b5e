#include <libtrain/train/cuda_graph.hpp>

#include <optional>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(const c10::Device& device) : device_(device) {}

  void begin() override {
    if (stream_) throw UsageError("A CUDA graph records once. Make another one with cuda_graph().");
    const c10::cuda::CUDAGuard on_device(device_);
    stream_ = c10::cuda::getCurrentCUDAStream();
    pool_ = at::cuda::graph_pool_handle();
    graph_.emplace();
    try {
      graph_->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    } catch (...) {
      abandon();
      throw;
    }
  }

  void end() override {
    if (!graph_) throw UsageError("CudaGraph::end() was called without begin().");
    const c10::cuda::CUDAStreamGuard in_stream(*stream_);  // also makes its GPU the current one
    try {
      graph_->capture_end();
    } catch (...) {
      abandon();
      throw;
    }
  }

  void replay() override {
    if (!graph_) throw UsageError("CudaGraph::replay() was called without a recording.");
    graph_->replay();
  }

 private:
  // LibTorch 2.11 does not clean up after a capture that CUDA has refused or invalidated: all later allocations would
  // ask a graph that no longer exists whether they belong to it. Calls fail for what the capture had not come to.
  void abandon() noexcept {
    const auto try_to = [](const auto& call) {
      try {
        call();
        return true;
      } catch (...) {
        return false;
      }
    };
    auto* const host = at::getHostAllocator(at::kCUDA);
    try_to([&] { allocator::endAllocateToPool(device_.index(), pool_); });
    try_to([&] { host->end_allocate_to_pool(pool_); });
    const bool graph_releases_pool = try_to([&] { graph_->pool(); });
    if (!graph_releases_pool) {
      try_to([&] { allocator::releasePool(device_.index(), pool_); });
      try_to([&] { host->release_pool(pool_); });
    }
    graph_.reset();
  }

  const c10::Device device_;
  std::optional<c10::cuda::CUDAStream> stream_;
  c10::MempoolId_t pool_ = {0, 0};
  std::optional<at::cuda::CUDAGraph> graph_;
};

}  // namespace

std::unique_ptr<DeviceGraph> cuda_graph(const c10::Device& device) {
  if (!device.is_cuda()) throw UsageError(text("cuda_graph() takes a CUDA device, not ", device, "."));
  const int devices = c10::cuda::device_count();
  if (device.index() >= devices || devices == 0) {
    throw EnvironmentError(text(device, " does not exist: this process sees ", devices, " GPUs."));
  }
  const auto index = device.has_index() ? device.index() : c10::cuda::current_device();
  return std::make_unique<CudaGraph>(c10::Device(c10::kCUDA, index));
}

}  // namespace libtrain
