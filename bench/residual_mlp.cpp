#include <bench/residual_mlp.hpp>

#include <torch/types.h>

#include <libtrain/base/text.hpp>

namespace libtrain::bench {

namespace {

torch::nn::Linear without_bias(std::int64_t inputs, std::int64_t outputs) {
  return torch::nn::Linear(torch::nn::LinearOptions(inputs, outputs).bias(false));
}

}  // namespace

ResidualMlpImpl::ResidualMlpImpl() {
  for (std::int64_t block = 0; block < ResidualMlpSizes::blocks; ++block) {
    const auto up = without_bias(ResidualMlpSizes::features, ResidualMlpSizes::hidden);
    const auto down = without_bias(ResidualMlpSizes::hidden, ResidualMlpSizes::features);
    register_module(text("up", block), up);
    register_module(text("down", block), down);
    blocks_.emplace_back(up, down);
  }
}

at::Tensor ResidualMlpImpl::forward(const at::Tensor& inputs) {
  auto outputs = inputs;
  for (auto& [up, down] : blocks_) outputs = outputs + down->forward(torch::relu(up->forward(outputs)));
  return outputs;
}

}  // namespace libtrain::bench
