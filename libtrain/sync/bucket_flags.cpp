#include <libtrain/sync/bucket_flags.hpp>

#include <algorithm>

#include <ATen/Dispatch.h>

namespace libtrain::detail {

bool BucketFlags::any_missing() const {
  const auto first = values_.begin() + static_cast<std::ptrdiff_t>(members_);
  return std::any_of(first, first + static_cast<std::ptrdiff_t>(members_), [](float value) { return value > 0; });
}

void BucketFlags::set_replica(std::uint64_t digest) {
  for (std::size_t bit = 0; bit < kReplicaBits; ++bit) values_[2 * (members_ + bit) + 3 + (digest >> bit & 1)] = 1;
}

bool BucketFlags::replicas_differ() const {
  for (std::size_t bit = 0; bit < kReplicaBits; ++bit) {
    const auto first = 2 * (members_ + bit) + 3;
    if (values_[first] > 0 && values_[first + 1] > 0) return true;
  }
  return false;
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
