#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/gradient_blocks.hpp>
#include <libtrain/sync/wire_format.hpp>

namespace libtrain::detail {

/// A parameter that has a place in a bucket.
struct BucketMember {
  std::string name = {};
  at::Tensor parameter = {};
  at::ScalarType type = at::kFloat;  ///< of the gradient
};

/// The memory of one bucket: a flat tensor in which each member's gradient has its place, laid out like its parameter,
/// and the flags theirs at the end.
///
/// With blocks, a bucket of one member has no memory of its own between rounds: in each round it adopts the block in
/// which autograd left the gradient, or takes one where that did not happen.
class GradientBucket {
 public:
  /// All members are of one dtype. `blocks` only for one member: it is added to them, and they make its memory. Throws
  /// as Communicator::allocate does.
  GradientBucket(std::size_t index, const std::vector<BucketMember>& members, Communicator& communicator,
                 std::shared_ptr<GradientBlocks> blocks = nullptr);

  /// With blocks: index and names, and `flat` and `flags` while it has memory; never `gradients`.
  const BucketView& view() const { return view_; }

  /// The place of the member-th gradient: its parameter's shape, and its strides where those are dense. Not an autograd
  /// view: `Optimizer::zero_grad(false)` detaches gradients in place, which views refuse. With blocks, one is taken
  /// where there is no place yet; throws as GradientBlocks::take() does.
  const at::Tensor& place(std::size_t member);

  /// Whether `gradient` is in its place already.
  bool holds(std::size_t member, const at::Tensor& gradient) const;

  /// Makes where `gradient` lies its place, where that is a block and nobody else's memory. Only right after autograd
  /// has accumulated it out of `incoming`: see is_alone_in_memory().
  bool adopt(const at::Tensor& gradient, const at::Tensor& incoming);

  /// Lets go of a block; the gradient keeps it while it is defined.
  void release();

  /// All gradients end to end, padding included, without the flags.
  const at::Tensor& gradients() const { return gradients_; }

 private:
  void use(const at::Tensor& flat);

  BucketView view_;
  std::vector<at::Tensor> places_;  // apart from the view's: what a wire format does is not a change by the user
  at::Tensor gradients_;
  std::int64_t gradient_elements_ = 0;  // padding included
  std::int64_t flag_elements_ = 0;
  std::shared_ptr<GradientBlocks> blocks_;
  at::Tensor like_;  // with blocks: of the gradient's shape, strides and dtype, without memory
};

}  // namespace libtrain::detail
