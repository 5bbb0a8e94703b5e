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
  std::int64_t elements = 0;               ///< the parameter's
  std::vector<std::int64_t> sizes = {};    ///< the same
  std::vector<std::int64_t> strides = {};  ///< in the bucket, where it is dense
};

/// The parameters of one bucket in flat memory, element by element where their gradients are in theirs, and this rank's
/// part of the optimizer's state.
class ShardedBucket {
 public:
  /// Parameters are elsewhere yet, see bind(). `states` tensors are kept for the optimizer, and start as zeros.
  /// `label` is what the bucket is called in errors.
  ShardedBucket(std::vector<ShardMember> members, const ShardLayout& layout, at::ScalarType type, std::size_t states,
                const std::string& label, Communicator& communicator);

  const std::vector<ShardMember>& members() const { return members_; }
  const ShardLayout& layout() const { return layout_; }

  /// [layout().elements()]
  const at::Tensor& parameters() const { return parameters_; }

  /// Each [layout().owned()]: the rank's part, then the rest.
  const std::vector<at::Tensor>& states() const { return states_; }

  /// Memory for gradients, of a bucket that the synchronizer does not have; undefined otherwise.
  const at::Tensor& own_gradients() const { return own_gradients_; }
  void make_own_gradients();

  /// Makes the parameter live in its place, with its values, if it does not yet. It keeps storage of its own size, as
  /// torch::save writes whole storages.
  void bind(const ShardMember& member, const at::Tensor& parameter) const;

  /// Lets the memory of parameters go as soon as they have moved elsewhere. The states stay.
  void release() { parameters_.reset(); }

  /// Starts to give every rank what the others have updated.
  Work gather_parameters(Communicator& communicator) const;

  /// All ranks' state, [layout().elements()], in memory of its own. All ranks must call it.
  at::Tensor gather_state(std::size_t state, Communicator& communicator) const;

  /// Sets this rank's elements from a whole parameter's state, of the parameter's shape.
  void set_state(std::size_t state, const ShardMember& member, const at::Tensor& whole) const;

  /// A member's elements of `flat`, [layout().elements()], in the parameter's shape; shares its memory.
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
