#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <torch/optim/optimizer.h>

#include <bench/workloads.hpp>
#include <libtrain/comm/communicator.hpp>
#include <libtrain/optim/loss_scaler.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

namespace libtrain::bench {

/// SGD with momentum, of LibTorch or of libtrain.
enum class Sgd { torch, fused };

struct TrainingPairOptions {
  std::string workload = {};
  std::int64_t batch = 1;       ///< samples of a rank
  std::int64_t image_size = 1;  ///< height and width
  Placement placement = {};
  at::ScalarType precision = at::kFloat;  ///< of an Autocast, with a LossScaler for float16
  Sgd sgd = Sgd::torch;
  std::size_t bucket_bytes = 25 << 20;
  Overlap overlap = Overlap::backward;
  TraceSink* trace = nullptr;
};

/// The same network twice: each rank trains one alone, and all ranks train the other together. Two, because the hooks
/// of a synchronised one would also run in steps alone. A step is zero_grad, forward, backward and SGD with momentum.
class TrainingPair {
 public:
  /// Data are drawn from torch's generator: seed it differently on each rank. Both networks start with rank 0's weights
  /// and have the same data on a rank, so that their steps take the same time. All ranks must call it.
  TrainingPair(const TrainingPairOptions& options, Communicator& communicator);

  /// On a GPU both return once their work is queued: see wait_for_device().
  void step_alone();
  void step_together();

  /// Waits until the device has done all steps; nothing on the CPU.
  void wait_for_device() const;

  /// Weights must be the same on all ranks, or the times mean nothing. All ranks must call it; throws
  /// std::runtime_error.
  void require_equal_weights();

  const GradientSynchronizer& synchronizer() const { return synchronizer_; }

  /// Elements of all parameters of one network.
  std::int64_t parameters() const;

  bool takes_images() const { return alone_.workload.takes_images; }

 private:
  struct Side {
    Side(const TrainingPairOptions& options, std::uint64_t seed);
    Workload workload;
    std::unique_ptr<torch::optim::Optimizer> sgd;
    std::optional<optim::LossScaler> scaler;
  };

  void backward(Side& side);
  static void step(Side& side);

  const TrainingPairOptions options_;
  Communicator& communicator_;
  const std::uint64_t seed_;
  Side alone_;
  Side together_;
  GradientSynchronizer synchronizer_;
};

}  // namespace libtrain::bench
