#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <torch/optim/sgd.h>

#include <bench/workloads.hpp>
#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

namespace libtrain::bench {

struct TrainingPairOptions {
  std::string workload = {};
  std::int64_t batch = 1;       ///< samples of a rank
  std::int64_t image_size = 1;  ///< height and width
  std::size_t bucket_bytes = 25 << 20;
  Overlap overlap = Overlap::backward;
  TraceSink* trace = nullptr;
};

/// The same network twice: each rank trains one alone, and all ranks train the other together. Two, because the hooks
/// of a synchronised one would also run in steps alone. A step is zero_grad, forward, backward and SGD with momentum.
class TrainingPair {
 public:
  /// Data and the weights of the network trained alone are drawn from torch's generator: seed it differently on each
  /// rank. All ranks must call it.
  TrainingPair(const TrainingPairOptions& options, Communicator& communicator);

  void step_alone();
  void step_together();

  /// Weights must be the same on all ranks, or the times mean nothing. All ranks must call it; throws
  /// std::runtime_error.
  void require_equal_weights();

  const GradientSynchronizer& synchronizer() const { return synchronizer_; }

  /// Elements of all parameters of one network.
  std::int64_t parameters() const;

  bool takes_images() const { return alone_.takes_images; }

 private:
  Communicator& communicator_;
  Workload alone_;
  Workload together_;
  torch::optim::SGD sgd_alone_;
  torch::optim::SGD sgd_together_;
  GradientSynchronizer synchronizer_;
};

}  // namespace libtrain::bench
