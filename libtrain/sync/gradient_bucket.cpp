#include <libtrain/sync/gradient_bucket.hpp>

#include <c10/core/ScalarType.h>

#include <ATen/ops/empty.h>

#include <libtrain/sync/bucket_flags.hpp>

namespace libtrain::detail {

namespace {

// Gradients start at multiples of a cache line.
constexpr std::int64_t kAlignmentBytes = 64;

std::int64_t padded(std::int64_t elements, std::int64_t element_bytes) {
  const auto step = kAlignmentBytes / element_bytes;
  return (elements + step - 1) / step * step;
}

at::Tensor part_of(const at::Tensor& flat, std::int64_t offset, const at::Tensor& parameter) {
  auto part = at::empty({0}, parameter.options().requires_grad(false));
  if (parameter.is_non_overlapping_and_dense()) {
    part.set_(flat.storage(), offset, parameter.sizes(), parameter.strides());
  } else {
    part.set_(flat.storage(), offset, parameter.sizes());
  }
  return part;
}

}  // namespace

GradientBucket::GradientBucket(std::size_t index, const std::vector<BucketMember>& members,
                               Communicator& communicator) {
  const auto type = members.front().parameter.scalar_type();
  const auto element_bytes = static_cast<std::int64_t>(c10::elementSize(type));
  const auto flags = padded(BucketFlags{members.size()}.size(), element_bytes);
  std::int64_t elements = 0;
  for (const auto& member : members) elements += padded(member.parameter.numel(), element_bytes);
  view_.index = index;
  view_.flat = communicator.allocate(elements + flags, type);
  gradients_ = view_.flat.narrow(0, 0, elements);
  view_.flags = view_.flat.narrow(0, elements, flags);

  std::int64_t offset = 0;
  for (const auto& [name, parameter] : members) {
    view_.names.push_back(name);
    view_.gradients.push_back(part_of(view_.flat, offset, parameter));
    places_.push_back(part_of(view_.flat, offset, parameter));
    offset += padded(parameter.numel(), element_bytes);
  }
}

}  // namespace libtrain::detail
