#include <libtrain/sync/model_signature.hpp>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/agreement.hpp>

namespace libtrain {

namespace {

std::string describe_tensor(const std::string& kind, const std::string& name, const at::Tensor& tensor,
                            Layouts layouts) {
  const auto strides =
      layouts == Layouts::ignored || tensor.is_contiguous() ? "" : text(", strides ", tensor.strides());
  return text(kind, " '", name, "' of shape ", tensor.sizes(), strides, " and dtype ", tensor.scalar_type(),
              tensor.requires_grad() || kind == "buffer" ? "" : ", frozen");
}

}  // namespace

namespace detail {

std::vector<std::string> model_signature(const torch::nn::Module& module, Layouts layouts) {
  std::vector<std::string> lines;
  for (const auto& item : module.named_parameters()) {
    lines.push_back(describe_tensor("parameter", item.key(), item.value(), layouts));
  }
  for (const auto& item : module.named_buffers()) {
    lines.push_back(describe_tensor("buffer", item.key(), item.value(), layouts));
  }
  return lines;
}

}  // namespace detail

void require_same_model(const torch::nn::Module& module, Communicator& communicator, Layouts layouts) {
  const CallPurpose purpose{communicator, "require_same_model()"};
  detail::require_agreement(
      {.subject = "The model", .unit = "tensors", .advice = "Build the same model on every rank."},
      detail::model_signature(module, layouts), communicator);
}

}  // namespace libtrain
