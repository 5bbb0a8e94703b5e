#include <libtrain/sync/bucket_flags.hpp>

#include <algorithm>

#include <ATen/Dispatch.h>

namespace libtrain::detail {

bool BucketFlags::any_missing() const {
  const auto first = values_.begin() + static_cast<std::ptrdiff_t>(members_);
  return std::any_of(first, first + static_cast<std::ptrdiff_t>(members_), [](float value) { return value > 0; });
}

void BucketFlags::write_to(const at::Tensor& memory) const {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, memory.scalar_type(), "write_bucket_flags", [&] {
    auto* target = memory.mutable_data_ptr<scalar_t>();
    for (std::size_t index = 0; index < values_.size(); ++index) target[index] = static_cast<scalar_t>(values_[index]);
  });
}

void BucketFlags::read_from(const at::Tensor& memory) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, memory.scalar_type(), "read_bucket_flags", [&] {
    const auto* source = memory.const_data_ptr<scalar_t>();
    for (std::size_t index = 0; index < values_.size(); ++index) values_[index] = static_cast<float>(source[index]);
  });
}

}  // namespace libtrain::detail
