#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/detail/sample_weights.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

namespace libtrain::detail {

/// Makes a module's buffers equal on all ranks, again and again: one collective a dtype, over memory that is kept.
class BufferExchange {
 public:
  /// The same buffers, in the same order, on every rank.
  BufferExchange(std::vector<at::Tensor> buffers, Communicator& communicator);

  /// Afterwards all ranks hold `root`'s.
  void broadcast(int root);

  /// What wait() does to them at the end of a round.
  void exchange(BufferPolicy policy, const SampleWeight& weight);

 private:
  struct Group {
    at::Tensor flat;
    std::vector<at::Tensor> buffers;
    std::vector<at::Tensor> places;  // in `flat`, one a buffer
  };
  // Floating buffers become the average over all ranks, in which this rank's count `weight` times (0 for not at all,
  // whatever they hold); others `root`'s.
  void average(double weight, int root);
  void make_groups();
  void broadcast(Group& group, int root);
  void average(Group& group, double weight);

  Communicator& communicator_;
  std::vector<at::Tensor> buffers_;
  std::vector<Group> groups_;  // made when first needed
};

}  // namespace libtrain::detail
