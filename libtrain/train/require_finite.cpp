#include <libtrain/train/require_finite.hpp>

#include <string_view>

#include <ATen/ops/isfinite.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {

namespace {

void require_finite(const at::Tensor& tensor, std::string_view kind, const std::string& name) {
  if (!tensor.defined() || !(tensor.is_floating_point() || tensor.is_complex())) return;
  const auto finite = at::isfinite(tensor).sum().item<std::int64_t>();
  if (finite == tensor.numel()) return;
  throw UsageError(text(kind, " '", name, "' has ", tensor.numel() - finite, " of ", tensor.numel(),
                        " elements that are not finite: the training has diverged. Lower the learning rate, clip "
                        "gradients, or set NonFinite::fatal to find the first non-finite gradient."));
}

}  // namespace

void require_finite(const torch::nn::Module& module) {
  for (const auto& parameter : module.named_parameters()) {
    require_finite(parameter.value(), "Parameter", parameter.key());
  }
  for (const auto& buffer : module.named_buffers()) require_finite(buffer.value(), "Buffer", buffer.key());
}

}  // namespace libtrain
