#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/detail/sample_weights.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

namespace libtrain::detail {

/// Makes a module's buffers equal on all ranks: one collective for each dtype, in memory that is reused.
class BufferExchange {
 public:
  /// The same buffers, in the same order, on every rank.
  BufferExchange(std::vector<at::Tensor> buffers, Communicator& communicator);

  /// Copies `root`'s buffers to all ranks.
  void broadcast(int root);

  /// What wait() does with the buffers at the end of a round.
  void exchange(BufferPolicy policy, const SampleWeight& weight);

 private:
  struct Group {
    at::Tensor flat;
    std::vector<at::Tensor> buffers;
    std::vector<at::Tensor> places;  // in `flat`, one for each buffer
  };
  // Floating buffers become the average over all ranks, in which this rank's count `weight` times (with 0 they may be
  // NaN); others become `root`'s.
  void average(double weight, int root);
  void make_groups();
  void broadcast(Group& group, int root);
  void average(Group& group, double weight);

  Communicator& communicator_;
  std::vector<at::Tensor> buffers_;
  std::vector<Group> groups_;  // made when first needed
};

}  // namespace libtrain::detail
