#include <libtrain/sync/broadcast.hpp>

#include <cstdint>
#include <map>

#include <ATen/core/grad_mode.h>

namespace libtrain {

namespace {

constexpr std::int64_t kChunkBytes = 16 << 20;

// Tensors of one dtype laid end to end, sent as one message.
void broadcast_flat(const std::vector<at::Tensor>& tensors, Communicator& communicator, int root) {
  std::int64_t elements = 0;
  for (const auto& tensor : tensors) elements += tensor.numel();
  const auto flat = communicator.allocate(elements, tensors.front().scalar_type());
  const auto part_of = [&flat](std::int64_t offset, const at::Tensor& tensor) {
    return flat.narrow(0, offset, tensor.numel()).view(tensor.sizes());
  };
  std::int64_t offset = 0;
  if (communicator.rank() == root) {
    for (const auto& tensor : tensors) {
      part_of(offset, tensor).copy_(tensor);
      offset += tensor.numel();
    }
  }
  // As bytes: buffers may be bool or complex, which communicators do not support.
  communicator.broadcast(flat.view(at::kByte), root).wait();
  if (communicator.rank() == root) return;
  for (const auto& tensor : tensors) {
    tensor.copy_(part_of(offset, tensor));
    offset += tensor.numel();
  }
}

}  // namespace

void broadcast_tensors(const std::vector<at::Tensor>& tensors, Communicator& communicator, int root) {
  if (communicator.world_size() == 1) return;
  const CallPurpose purpose{communicator, "broadcast_tensors()"};
  const at::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<at::Tensor>> pending;
  std::map<at::ScalarType, std::int64_t> bytes;
  for (const auto& tensor : tensors) {
    const auto type = tensor.scalar_type();
    pending[type].push_back(tensor);
    bytes[type] += static_cast<std::int64_t>(tensor.nbytes());
    if (bytes[type] < kChunkBytes) continue;
    broadcast_flat(pending[type], communicator, root);
    pending.erase(type);
    bytes.erase(type);
  }
  for (const auto& [type, group] : pending) broadcast_flat(group, communicator, root);
}

}  // namespace libtrain
