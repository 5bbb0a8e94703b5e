#include <libtrain/sync/detail/buffer_exchange.hpp>

#include <algorithm>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

namespace libtrain::detail {

namespace {

constexpr std::string_view kPurpose = "the module's buffers";

void copy_each(const std::vector<at::Tensor>& targets, const std::vector<at::Tensor>& sources) {
  for (std::size_t index = 0; index < targets.size(); ++index) targets[index].copy_(sources[index]);
}

}  // namespace

BufferExchange::BufferExchange(std::vector<at::Tensor> buffers, Communicator& communicator)
    : communicator_(communicator), buffers_(std::move(buffers)) {}

void BufferExchange::make_groups() {
  if (!groups_.empty()) return;
  const c10::InferenceMode off{false};  // later calls outside of it use the memory, too
  for (const auto& buffer : buffers_) {
    if (!buffer.defined() || buffer.numel() == 0) continue;
    const auto same_type = [&](const Group& group) {
      return group.buffers.front().scalar_type() == buffer.scalar_type();
    };
    auto group = std::find_if(groups_.begin(), groups_.end(), same_type);
    if (group == groups_.end()) group = groups_.insert(groups_.end(), Group{});
    group->buffers.push_back(buffer);
  }
  for (auto& group : groups_) {
    std::int64_t elements = 0;
    for (const auto& buffer : group.buffers) elements += buffer.numel();
    group.flat = communicator_.allocate(elements, group.buffers.front().scalar_type());
    std::int64_t offset = 0;
    for (const auto& buffer : group.buffers) {
      group.places.push_back(group.flat.narrow(0, offset, buffer.numel()).view(buffer.sizes()));
      offset += buffer.numel();
    }
  }
}

void BufferExchange::broadcast(Group& group, int root) {
  const bool mine = communicator_.rank() == root;
  if (mine) copy_each(group.places, group.buffers);
  // As bytes: buffers may be bool or complex, which communicators do not support.
  communicator_.broadcast(group.flat.view(at::kByte), root).wait();
  if (!mine) copy_each(group.buffers, group.places);
}

void BufferExchange::average(Group& group, double weight) {
  copy_each(group.places, group.buffers);
  if (weight == 0) {
    group.flat.zero_();
  } else if (weight != 1) {
    group.flat.mul_(weight);
  }
  communicator_.all_reduce(group.flat, ReduceOp::average).wait();
  copy_each(group.buffers, group.places);
}

void BufferExchange::broadcast(int root) {
  if (communicator_.world_size() == 1) return;
  const CallPurpose purpose{communicator_, kPurpose};
  const at::NoGradGuard no_grad;
  make_groups();
  for (auto& group : groups_) broadcast(group, root);
}

void BufferExchange::exchange(BufferPolicy policy, const SampleWeight& weight) {
  if (policy == BufferPolicy::averaged && !weight.is_empty) {
    average(weight.weight, weight.source);
  } else if (policy != BufferPolicy::local) {
    broadcast(weight.source);
  }
}

void BufferExchange::average(double weight, int root) {
  if (communicator_.world_size() == 1) return;
  const CallPurpose purpose{communicator_, kPurpose};
  const at::NoGradGuard no_grad;
  make_groups();
  for (auto& group : groups_) {
    if (group.flat.is_floating_point()) {
      average(group, weight);
    } else {
      broadcast(group, root);
    }
  }
}

}  // namespace libtrain::detail
