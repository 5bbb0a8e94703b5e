#include <libtrain/sync/model_signature.hpp>

#include <libtrain/base/text.hpp>
#include <libtrain/sync/agreement.hpp>

namespace libtrain {

namespace {

std::string describe(const std::string& kind, const std::string& name, const at::Tensor& tensor) {
  return text(kind, " '", name, "' of shape ", tensor.sizes(), " and dtype ", tensor.scalar_type(),
              tensor.requires_grad() || kind == "buffer" ? "" : ", frozen");
}

}  // namespace

namespace detail {

std::vector<std::string> model_signature(const torch::nn::Module& module) {
  std::vector<std::string> lines;
  for (const auto& item : module.named_parameters()) lines.push_back(describe("parameter", item.key(), item.value()));
  for (const auto& item : module.named_buffers()) lines.push_back(describe("buffer", item.key(), item.value()));
  return lines;
}

}  // namespace detail

void require_same_model(const torch::nn::Module& module, Communicator& communicator) {
  detail::require_agreement(
      {.subject = "The model", .unit = "tensors", .advice = "Build the same model on every rank."},
      detail::model_signature(module), communicator);
}

}  // namespace libtrain
