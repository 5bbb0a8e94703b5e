#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace libtrain::optim {

struct MovingAverageOptions {
  double decay = 0.9999;  ///< what each update keeps of the average; 0 or more, less than 1
  /// Keep min(decay, (1 + n) / (10 + n)) in update n = 0, 1, ... instead, so that the random weights at the start of
  /// training are soon forgotten: the num_updates of TensorFlow's ExponentialMovingAverage.
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
/// Floating and complex tensors are averaged, in float32 where they are float16 or bfloat16, otherwise in their own
/// dtype; integers (num_batches_tracked) are those of the last update. The average lives on the module's device.
///
/// Every rank keeps its own and sends nothing: weights are equal on all ranks, and so are their averages. Those of
/// buffers are not under BufferPolicy::local: call GradientSynchronizer::broadcast_buffers() after swap(), so that all
/// ranks evaluate with rank 0's. Before swap() it would change the buffers that the averages take the place of. What it
/// changes goes with the Swap, which brings each rank's own buffers back. One thread.
class MovingAverage {
 public:
  /// Names as in the module's named_parameters() and named_buffers().
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  /// Starts from the module's present values, copied. Make it where all ranks have the same: after the
  /// GradientSynchronizer. Throws UsageError for a decay out of its range.
  explicit MovingAverage(const torch::nn::Module& module, const MovingAverageOptions& options = {});

  MovingAverage(const MovingAverage&) = delete;  // what is swapped belongs to one average
  MovingAverage& operator=(const MovingAverage&) = delete;

  /// average = decay * average + (1 - decay) * value. After each optimizer step. Throws UsageError for a module whose
  /// tensors differ from the average's in name, shape, dtype or device, and while swapped.
  void update(const torch::nn::Module& module);

  /// While it lives, the module holds the average. Copies back what was there before, bit by bit, when it goes.
  class [[nodiscard]] Swap {
   public:
    ~Swap();
    Swap(Swap&&) noexcept = default;
    Swap& operator=(Swap&&) = delete;

    /// Does so now; nothing, the second time.
    void swap_back();

   private:
    friend class MovingAverage;
    Swap() = default;
    std::vector<at::Tensor> tensors_;
    std::vector<at::Tensor> saved_;
    std::shared_ptr<bool> swapped_;
  };

  /// Copies the average into the module for an evaluation, rounded to the module's dtypes; what the module held is kept
  /// in a copy meanwhile. Not between a forward and the synchronizer's wait(). Throws UsageError for a module whose
  /// tensors differ in name, shape or dtype, and while swapped.
  Swap swap(torch::nn::Module& module);

  /// The same for good, such as into a module made for exporting the average.
  void copy_to(torch::nn::Module& module) const;

  /// The average itself, not copies, for checkpoints.
  NamedTensors named_tensors() const { return tensors_; }

  /// Updates so far; belongs into checkpoints, too.
  std::int64_t updates() const { return updates_; }

  /// Goes on from what named_tensors() and updates() said, in any order of the names. Throws UsageError, and changes
  /// nothing, for tensors that are missing, unknown, or differ in shape or dtype.
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
