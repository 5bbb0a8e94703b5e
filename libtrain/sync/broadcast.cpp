#include <libtrain/sync/broadcast.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace libtrain {

namespace {

constexpr std::int64_t kChunkBytes = 16 << 20;

// Sends tensors through one piece of memory, whose pages are touched once. No message is longer than kChunkBytes.
class Sender {
 public:
  Sender(Communicator& communicator, int root, std::int64_t total_bytes)
      : communicator_(communicator),
        root_(root),
        memory_(communicator.allocate(std::min(total_bytes, kChunkBytes), at::kByte)) {}

  /// Of one dtype, laid end to end in one message.
  void send(const std::vector<at::Tensor>& tensors) {
    std::int64_t elements = 0;
    for (const auto& tensor : tensors) elements += tensor.numel();
    const auto bytes = elements * tensors.front().element_size();
    const auto flat = memory_.narrow(0, 0, bytes).view(tensors.front().scalar_type());
    const auto part_of = [&flat](std::int64_t offset, const at::Tensor& tensor) {
      return flat.narrow(0, offset, tensor.numel()).view(tensor.sizes());
    };
    std::int64_t offset = 0;
    if (communicator_.rank() == root_) {
      for (const auto& tensor : tensors) {
        part_of(offset, tensor).copy_(tensor);
        offset += tensor.numel();
      }
    }
    // As bytes: buffers may be bool or complex, which communicators do not support.
    communicator_.broadcast(flat.view(at::kByte), root_).wait();
    if (communicator_.rank() == root_) return;
    for (const auto& tensor : tensors) {
      tensor.copy_(part_of(offset, tensor));
      offset += tensor.numel();
    }
  }

  /// In messages of its own.
  void send_in_parts(const at::Tensor& tensor) {
    const bool sends = communicator_.rank() == root_;
    const bool has_own_order = !tensor.is_contiguous();
    const auto ordered = sends || !has_own_order ? tensor.contiguous() : at::empty(tensor.sizes(), tensor.options());
    for (const auto& part : ordered.view({-1}).split(kChunkBytes / tensor.element_size())) send({part});
    if (has_own_order && !sends) tensor.copy_(ordered);
  }

 private:
  Communicator& communicator_;
  const int root_;
  const at::Tensor memory_;
};

}  // namespace

void broadcast_tensors(const std::vector<at::Tensor>& tensors, Communicator& communicator, int root) {
  if (communicator.world_size() == 1 || tensors.empty()) return;
  const CallPurpose purpose{communicator, "broadcast_tensors()"};
  const at::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<at::Tensor>> pending;
  std::map<at::ScalarType, std::int64_t> bytes;
  std::int64_t total = 0;
  for (const auto& tensor : tensors) total += static_cast<std::int64_t>(tensor.nbytes());
  Sender sender(communicator, root, total);
  for (const auto& tensor : tensors) {
    if (static_cast<std::int64_t>(tensor.nbytes()) > kChunkBytes) {
      sender.send_in_parts(tensor);
      continue;
    }
    const auto type = tensor.scalar_type();
    const auto size = static_cast<std::int64_t>(tensor.nbytes());
    if (bytes[type] + size > kChunkBytes) {
      sender.send(pending[type]);
      pending[type].clear();
      bytes[type] = 0;
    }
    pending[type].push_back(tensor);
    bytes[type] += size;
  }
  for (const auto& [type, group] : pending) sender.send(group);
}

}  // namespace libtrain
