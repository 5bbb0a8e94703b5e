#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace libtrain {

struct AutocastOptions {
  at::ScalarType type = at::kBFloat16;  ///< bfloat16 or float16; float32 switches autocast off, also within another one

  /// Weights are cast once and the result is kept until the outermost Autocast of the thread ends. Set it to false
  /// where a CUDA graph is recorded inside of the scope: a kept copy would outlive the graph's memory, and a graph that
  /// found one would not cast the weights again after a step.
  bool cache_weights = true;
};

/// Automatic mixed precision of this thread, from construction to destruction: LibTorch's operators choose the type of
/// their computation, as under torch.autocast in Python.
///
///     at::Tensor loss;
///     {
///       const Autocast autocast{context.device(), {.type = at::kBFloat16}};
///       loss = torch::cross_entropy_loss(model->forward(batch.images), batch.labels);
///     }
///     loss.backward();   // outside: it computes in the types that forward has chosen
///
/// The optimizer's step belongs outside too: casts of the weights that are kept do not see it.
///
/// Parameters stay float32, and so do their gradients, what a GradientSynchronizer averages, and the optimizer's state.
/// On a GPU matrix products and convolutions run in `type`; softmax, losses, norms of layers and groups, sums, powers,
/// exponentials and logarithms in float32; batch norm takes inputs of `type` and keeps statistics in float32; other
/// operators take what they get, and the wider type if their inputs differ. The lists are those of LibTorch's device
/// type ("Autocast Op Reference" in PyTorch's documentation of torch.amp); the CPU's is shorter.
///
/// float16 needs an optim::LossScaler, because small gradients underflow in it. bfloat16 has the range of float32 and
/// needs none. On NVIDIA GPUs before compute capability 8.0 bfloat16 is emulated: use float16 there.
///
/// The state belongs to the thread: worker threads, and other ranks that are threads, are not affected. Scopes nest;
/// each restores the state that it found, also when an exception leaves it. Construct and destroy it in one thread, in
/// the order of the scopes.
class Autocast {
 public:
  /// Throws UsageError for another type, and for a device type without autocast.
  explicit Autocast(c10::Device device, const AutocastOptions& options = {});
  Autocast(const Autocast&) = delete;  // it restores once
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast();

 private:
  c10::DeviceType device_;
  at::ScalarType former_type_;
  bool was_enabled_;
  bool had_cache_;
  bool changes_type_;
};

}  // namespace libtrain
