#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/detail/sharding/shard_layout.hpp>

namespace libtrain::detail {

/// A parameter's place in a bucket.
struct ShardMember {
  std::size_t parameter = 0;               ///< index into the optimizer's list
  std::int64_t offset = 0;                 ///< of its first element in the bucket
  std::int64_t elements = 0;               ///< of the parameter
  std::vector<std::int64_t> sizes = {};    ///< of the parameter
  std::vector<std::int64_t> strides = {};  ///< in the bucket, where it is dense
};

/// The parameters of one bucket in flat memory, each element at the position of its gradient in the gradients' memory,
/// and this rank's part of the optimizer's state.
class ShardedBucket {
 public:
  /// Parameters are not moved yet, see bind(). The optimizer's `states` tensors start as zeros. `label` names the
  /// bucket in errors.
  ShardedBucket(std::vector<ShardMember> members, const ShardLayout& layout, at::ScalarType type, std::size_t states,
                const std::string& label, Communicator& communicator);

  const std::vector<ShardMember>& members() const { return members_; }
  const ShardLayout& layout() const { return layout_; }

  /// [layout().elements()]
  const at::Tensor& parameters() const { return parameters_; }

  /// Each [layout().owned()]: the rank's part, then the rest.
  const std::vector<at::Tensor>& states() const { return states_; }

  /// Memory for the gradients of a bucket that the synchronizer does not have; undefined otherwise.
  const at::Tensor& own_gradients() const { return own_gradients_; }
  void make_own_gradients();

  /// Moves the parameter to its place, with its values, unless it is there already. Its storage has the parameter's
  /// size, as torch::save writes whole storages.
  void bind(const ShardMember& member, const at::Tensor& parameter) const;

  /// Frees the memory of parameters as soon as they have moved to other memory. The states stay.
  void release() { parameters_.reset(); }

  /// Starts to send this rank's updated part to the other ranks, and to receive theirs.
  Work gather_parameters(Communicator& communicator) const;

  /// All ranks' state, [layout().elements()], in new memory. All ranks must call it.
  at::Tensor gather_state(std::size_t state, Communicator& communicator) const;

  /// Sets this rank's elements from a whole parameter's state, of the parameter's shape.
  void set_state(std::size_t state, const ShardMember& member, const at::Tensor& whole) const;

  /// A member's elements of `flat`, [layout().elements()], in the parameter's shape; shares the memory of `flat`.
  static at::Tensor view_of(const at::Tensor& flat, const ShardMember& member);

 private:
  std::vector<ShardMember> members_;
  ShardLayout layout_;
  std::shared_ptr<const std::string> label_;
  at::Tensor parameters_;
  at::Tensor own_gradients_;
  std::vector<at::Tensor> states_;
};

}  // namespace libtrain::detail
