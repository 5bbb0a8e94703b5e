#include <libtrain/sync/gradient_bucket.hpp>

#include <ATen/ops/empty.h>

namespace libtrain::detail {

namespace {

// Gradients start at multiples of a cache line.
constexpr std::int64_t kAlignmentBytes = 64;

std::int64_t padded(std::int64_t elements, std::int64_t element_bytes) {
  const auto step = kAlignmentBytes / element_bytes;
  return (elements + step - 1) / step * step;
}

}  // namespace

GradientBucket::GradientBucket(const Bucket& plan, const std::vector<at::Tensor>& parameters,
                               Communicator& communicator) {
  std::int64_t elements = 0;
  const auto element_bytes = static_cast<std::int64_t>(size_of(plan.type));
  for (const auto& parameter : parameters) elements += padded(parameter.numel(), element_bytes);
  flat_ = communicator.allocate(elements, parameters.front().scalar_type());

  std::int64_t offset = 0;
  for (const auto& parameter : parameters) {
    auto gradient = at::empty({0}, parameter.options().requires_grad(false));
    if (parameter.is_non_overlapping_and_dense()) {
      gradient.set_(flat_.storage(), offset, parameter.sizes(), parameter.strides());
    } else {
      gradient.set_(flat_.storage(), offset, parameter.sizes());
    }
    gradients_.push_back(std::move(gradient));
    offset += padded(parameter.numel(), element_bytes);
  }
}

}  // namespace libtrain::detail
