#include <libtrain/sync/gradient_bucket.hpp>

#include <utility>

#include <c10/core/ScalarType.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <libtrain/sync/bucket_flags.hpp>
#include <libtrain/sync/gradient_aliases.hpp>

namespace libtrain::detail {

namespace {

// Gradients start at multiples of a cache line.
constexpr std::int64_t kAlignmentBytes = 64;

std::int64_t padded(std::int64_t elements, std::int64_t element_bytes) {
  const auto step = kAlignmentBytes / element_bytes;
  return (elements + step - 1) / step * step;
}

at::Tensor part_of(const at::Tensor& flat, std::int64_t offset, const at::Tensor& parameter) {
  auto part = at::empty({0}, flat.options());
  if (parameter.is_non_overlapping_and_dense()) {
    part.set_(flat.storage(), offset, parameter.sizes(), parameter.strides());
  } else {
    part.set_(flat.storage(), offset, parameter.sizes());
  }
  return part;
}

at::Tensor shape_of(const BucketMember& member) {
  const auto& parameter = member.parameter;
  const auto options = at::TensorOptions(at::kMeta).dtype(member.type);
  return parameter.is_non_overlapping_and_dense() ? at::empty_strided(parameter.sizes(), parameter.strides(), options)
                                                  : at::empty(parameter.sizes(), options);
}

// The strides of dimensions of one element say nothing.
bool has_layout_of(const at::Tensor& like, const at::Tensor& gradient) {
  if (gradient.sizes() != like.sizes()) return false;
  for (std::int64_t dimension = 0; dimension < like.dim(); ++dimension) {
    if (like.size(dimension) > 1 && like.stride(dimension) != gradient.stride(dimension)) return false;
  }
  return true;
}

at::Tensor as_type(const at::Tensor& bytes, at::ScalarType type) {
  const auto elements = bytes.numel() / static_cast<std::int64_t>(c10::elementSize(type));
  return at::from_blob(bytes.mutable_data_ptr(), {elements}, [storage = bytes.storage()](void*) {}, type);
}

}  // namespace

GradientBucket::GradientBucket(std::size_t index, const std::vector<BucketMember>& members, Communicator& communicator,
                               std::shared_ptr<GradientBlocks> blocks)
    : blocks_(std::move(blocks)) {
  const auto type = members.front().type;
  const auto element_bytes = static_cast<std::int64_t>(c10::elementSize(type));
  flag_elements_ = padded(BucketFlags{members.size()}.size(), element_bytes);
  view_.index = index;
  for (const auto& member : members) {
    view_.names.push_back(member.name);
    gradient_elements_ += padded(member.parameter.numel(), element_bytes);
  }
  const auto elements = gradient_elements_ + flag_elements_;
  if (blocks_) {
    like_ = shape_of(members.front());
    blocks_->add(like_.nbytes(), static_cast<std::size_t>(elements * element_bytes) - like_.nbytes());
    return;
  }
  use(communicator.allocate(elements, type));
  std::int64_t offset = 0;
  for (const auto& member : members) {
    view_.gradients.push_back(part_of(view_.flat, offset, member.parameter));
    places_.push_back(part_of(view_.flat, offset, member.parameter));
    offset += padded(member.parameter.numel(), element_bytes);
  }
}

void GradientBucket::use(const at::Tensor& flat) {
  view_.flat = flat;
  gradients_ = flat.narrow(0, 0, gradient_elements_);
  view_.flags = flat.narrow(0, gradient_elements_, flag_elements_);
}

const at::Tensor& GradientBucket::place(std::size_t member) {
  if (places_.empty()) {
    use(as_type(blocks_->take(like_.nbytes()), like_.scalar_type()));
    places_.push_back(part_of(view_.flat, 0, like_));
  }
  return places_[member];
}

bool GradientBucket::holds(std::size_t member, const at::Tensor& gradient) const {
  return member < places_.size() && places_[member].is_same(gradient);
}

bool GradientBucket::adopt(const at::Tensor& gradient, const at::Tensor& incoming) {
  if (!blocks_ || gradient.layout() != at::kStrided || !gradient.is_cpu() || gradient.requires_grad()) return false;
  if (gradient.is_neg() || gradient.is_conj() || gradient.scalar_type() != like_.scalar_type()) return false;
  if (!has_layout_of(like_, gradient)) return false;
  if (!is_alone_in_memory(gradient, incoming)) return false;
  const auto block = blocks_->block_of(gradient);
  if (!block.defined()) return false;
  use(as_type(block, like_.scalar_type()));
  places_.assign(1, gradient);
  return true;
}

void GradientBucket::release() {
  if (!blocks_) return;
  places_.clear();
  gradients_ = view_.flat = view_.flags = at::Tensor();
}

}  // namespace libtrain::detail
