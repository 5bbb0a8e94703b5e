#include <libtrain/optim/named_tensors.hpp>

namespace libtrain::optim {

NamedTensors named_tensors(const torch::nn::Module& module) {
  NamedTensors named;
  for (const auto& tensors : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : tensors) {
      if (item.value().defined()) named.emplace_back(item.key(), item.value());
    }
  }
  return named;
}

}  // namespace libtrain::optim
