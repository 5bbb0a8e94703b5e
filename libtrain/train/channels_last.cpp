#include <libtrain/train/channels_last.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {

namespace {

// Copies always: a weight of 1x1 counts as contiguous in both layouts, but operators read its layout off its strides.
void reorder(at::Tensor tensor) {
  if (!tensor.defined() || tensor.dim() != 4) return;
  tensor.set_data(
      tensor.detach().to(tensor.options(), /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::ChannelsLast));
}

}  // namespace

void to_channels_last(torch::nn::Module& module) {
  for (const auto& parameter : module.named_parameters()) {
    if (!parameter.value().mutable_grad().defined()) continue;
    throw UsageError(text("Parameter '", parameter.key(),
                          "' has a gradient already. Call to_channels_last() before the first backward pass."));
  }
  for (const auto& parameter : module.parameters()) reorder(parameter);
  for (const auto& buffer : module.buffers()) reorder(buffer);
}

}  // namespace libtrain
