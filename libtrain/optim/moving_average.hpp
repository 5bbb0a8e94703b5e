#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <libtrain/optim/named_tensors.hpp>

namespace libtrain::optim {

struct MovingAverageOptions {
  double decay = 0.9999;  ///< the weight of the previous average in an update; 0 or more, less than 1
  /// Use min(decay, (1 + n) / (10 + n)) in update n = 0, 1, ... instead, so that the random weights at the start of
  /// training lose their influence soon: the num_updates of TensorFlow's ExponentialMovingAverage.
  bool warm_up = false;
};

/// The exponential moving average of a module's parameters and buffers over the steps, whose weights often generalise
/// better than the last step's: Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992.
///
///     optim::MovingAverage average{*model, {.decay = 0.999}};
///     for (auto& batch : batches) {
///       ...
///       optimizer.step();
///       average.update(*model);
///     }
///     {
///       const auto swapped = average.swap(*model);
///       synchronizer.broadcast_buffers();
///       evaluate(*model);
///     }
///
/// Floating and complex tensors are averaged, float16 and bfloat16 in float32, others in their own dtype; integers
/// (num_batches_tracked) are those of the last update. The average is on the module's device; on a GPU, an update is a
/// few multi-tensor operations for each dtype, and nothing waits.
///
/// Every rank keeps its own average, without communication: weights are equal on all ranks, and so are their averages.
/// Those of buffers are not under BufferPolicy::local: call GradientSynchronizer::broadcast_buffers() after swap(), so
/// that all ranks evaluate with rank 0's. Do not call it before swap(): it would change the module's own buffers. When
/// the Swap is destroyed, each rank gets its own buffers back. Not thread-safe.
class MovingAverage {
 public:
  /// Starts with a copy of the module's current values. Create it after the GradientSynchronizer, when all ranks have
  /// the same values. Throws UsageError for a decay out of range.
  explicit MovingAverage(const torch::nn::Module& module, const MovingAverageOptions& options = {});

  MovingAverage(const MovingAverage&) = delete;  // a Swap refers to one average
  MovingAverage& operator=(const MovingAverage&) = delete;

  /// average = decay * average + (1 - decay) * value. Call it after each optimizer step. Throws UsageError for a module
  /// whose tensors differ from the average's in name, shape, dtype or device, while a Swap exists, and with `warm_up`
  /// in a step that a StepGraph records. A graph that is recorded by hand would keep the decay of its recording.
  void update(const torch::nn::Module& module);

  /// While it exists, the module has the average. Its destructor restores the previous values, bit by bit.
  class [[nodiscard]] Swap {
   public:
    ~Swap();
    Swap(Swap&&) noexcept = default;
    Swap& operator=(Swap&&) = delete;

    /// Restores them now; a second call does nothing.
    void swap_back();

   private:
    friend class MovingAverage;
    Swap() = default;
    std::vector<at::Tensor> tensors_;
    std::vector<at::Tensor> saved_;
    std::shared_ptr<bool> swapped_;
  };

  /// Copies the average into the module for an evaluation, rounded to the module's dtypes; the Swap keeps a copy of the
  /// module's values. Not between a forward pass and the synchronizer's wait(). Throws UsageError for a module whose
  /// tensors differ in name, shape or dtype, and while another Swap exists.
  Swap swap(torch::nn::Module& module);

  /// Copies the average permanently, such as into a module for exporting it; each rank's own buffers, so that
  /// GradientSynchronizer::broadcast_buffers() must follow before all ranks evaluate the module.
  void copy_to(torch::nn::Module& module) const;

  /// The average itself, not copies, for checkpoints, in the order of optim::named_tensors().
  NamedTensors named_tensors() const { return tensors_; }

  /// The number of updates, without the replays of a graph; part of a checkpoint, too.
  std::int64_t updates() const { return updates_; }

  /// Continues from the values of named_tensors() and updates(), in any order of the names. Throws UsageError, and
  /// changes nothing, for tensors that are missing, unknown, or differ in shape or dtype.
  void load(const NamedTensors& tensors, std::int64_t updates);

 private:
  void require_same(const NamedTensors& tensors) const;
  void require_not_swapped(const char* call) const;

  MovingAverageOptions options_;
  NamedTensors tensors_;
  std::int64_t updates_ = 0;
  std::shared_ptr<bool> swapped_ = std::make_shared<bool>(false);
};

}  // namespace libtrain::optim
