#include <libtrain/sync/detail/sharding/sharded_bucket.hpp>

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

namespace libtrain::detail {

ShardedBucket::ShardedBucket(std::vector<ShardMember> members, const ShardLayout& layout, at::ScalarType type,
                             std::size_t states, const std::string& label, Communicator& communicator)
    : members_(std::move(members)),
      layout_(layout),
      label_(std::make_shared<const std::string>(label)),
      parameters_(communicator.allocate(layout.elements(), type)) {
  for (std::size_t state = 0; state < states; ++state) {
    states_.push_back(at::zeros({layout.owned()}, parameters_.options()));
  }
}

void ShardedBucket::make_own_gradients() {
  own_gradients_ = at::zeros({layout_.elements()}, parameters_.options());
}

void ShardedBucket::bind(const ShardMember& member, const at::Tensor& parameter) const {
  if (member.elements == 0) return;
  auto* const memory = static_cast<char*>(parameters_.mutable_data_ptr());
  auto* const place = memory + static_cast<std::size_t>(member.offset) * parameters_.itemsize();
  if (parameter.const_data_ptr() == place && parameter.strides() == at::IntArrayRef(member.strides)) return;
  const at::NoGradGuard no_grad;
  const auto home = at::for_blob(place, member.sizes)
                        .strides(member.strides)
                        .deleter([flat = parameters_](void* /*place*/) mutable { flat.reset(); })
                        .options(parameters_.options())
                        .target_device(parameters_.device())
                        .make_tensor();
  home.copy_(parameter);
  parameter.set_data(home);
}

Work ShardedBucket::gather_parameters(Communicator& communicator) const {
  if (communicator.world_size() == 1 || layout_.part() == 0) return {};
  const CallPurpose purpose{communicator, label_};
  return communicator.all_gather(parameters_.narrow(0, layout_.part_begin(), layout_.part()),
                                 parameters_.narrow(0, 0, layout_.scattered()));
}

at::Tensor ShardedBucket::gather_state(std::size_t state, Communicator& communicator) const {
  const at::NoGradGuard no_grad;
  const auto& mine = states_[state];
  const auto whole = at::empty({layout_.elements()}, mine.options());
  if (layout_.part() > 0) {
    communicator.all_gather(mine.narrow(0, 0, layout_.part()), whole.narrow(0, 0, layout_.scattered())).wait();
  }
  whole.narrow(0, layout_.scattered(), layout_.rest()).copy_(mine.narrow(0, layout_.part(), layout_.rest()));
  return whole;
}

void ShardedBucket::set_state(std::size_t state, const ShardMember& member, const at::Tensor& whole) const {
  const at::NoGradGuard no_grad;
  const auto& mine = states_[state];
  const auto laid_out = at::empty_strided(member.sizes, member.strides, mine.options()).copy_(whole);
  const auto elements = laid_out.as_strided({member.elements}, {1});
  for (const auto& run : layout_.owned_in(member.offset, member.elements)) {
    if (run.count == 0) continue;
    mine.narrow(0, run.in_state, run.count).copy_(elements.narrow(0, run.begin - member.offset, run.count));
  }
}

at::Tensor ShardedBucket::view_of(const at::Tensor& flat, const ShardMember& member) {
  return flat.as_strided(member.sizes, member.strides, flat.storage_offset() + member.offset);
}

}  // namespace libtrain::detail
