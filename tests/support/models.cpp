#include <tests/support/models.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/init.h>

namespace libtrain::testing {

namespace {

struct ConvNetImpl : torch::nn::Module {
  torch::nn::Conv2d first{torch::nn::Conv2dOptions(2, 6, 3).padding(1)};
  torch::nn::Conv2d second{torch::nn::Conv2dOptions(6, 4, 3).stride(2)};
  torch::nn::Linear head{4 * 3 * 3, 3};
  ConvNetImpl() {
    register_module("first", first);
    register_module("second", second);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) { return head(torch::tanh(second(torch::relu(first(x)))).flatten(1)); }
};
TORCH_MODULE(ConvNet);

struct TransformerBlockImpl : torch::nn::Module {
  torch::nn::LayerNorm before_attention{torch::nn::LayerNormOptions({8})};
  torch::nn::MultiheadAttention attention{torch::nn::MultiheadAttentionOptions(8, 2)};
  torch::nn::LayerNorm before_mlp{torch::nn::LayerNormOptions({8})};
  torch::nn::Linear up{8, 16};
  torch::nn::Linear down{16, 8};
  torch::nn::Linear head{8, 3};
  TransformerBlockImpl() {
    register_module("before_attention", before_attention);
    register_module("attention", attention);
    register_module("before_mlp", before_mlp);
    register_module("up", up);
    register_module("down", down);
    register_module("head", head);
  }
  // [N, length, 8] -> [N, 3]
  at::Tensor forward(const at::Tensor& x) {
    const auto normal = before_attention(x).transpose(0, 1);
    const auto attended = x + std::get<0>(attention->forward(normal, normal, normal)).transpose(0, 1);
    const auto hidden = attended + down(torch::gelu(up(before_mlp(attended))));
    return head(hidden.mean(1));
  }
};
TORCH_MODULE(TransformerBlock);

at::Generator generator_of(std::uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

}  // namespace

TestModel make_model(const std::string& kind, at::ScalarType type, std::uint64_t seed) {
  TestModel model;
  if (kind == "mlp") {
    torch::nn::Sequential mlp{torch::nn::Linear(5, 16), torch::nn::Tanh(), torch::nn::Linear(16, 16), torch::nn::ReLU(),
                              torch::nn::Linear(16, 3)};
    model = {[mlp](const at::Tensor& x) mutable { return mlp->forward(x); }, mlp.ptr(), {5}};
  } else if (kind == "conv") {
    ConvNet net;
    model = {[net](const at::Tensor& x) mutable { return net->forward(x); }, net.ptr(), {2, 8, 8}};
  } else {
    TransformerBlock block;
    model = {[block](const at::Tensor& x) mutable { return block->forward(x); }, block.ptr(), {6, 8}};
  }
  model.module->to(type);
  const torch::NoGradGuard no_grad;
  const auto generator = generator_of(seed);
  for (auto& parameter : model.module->parameters()) {
    // Drawn in float64, so that both precisions start from the same weights.
    parameter.copy_(torch::empty(parameter.sizes(), at::kDouble).normal_(0, 0.3, generator));
  }
  return model;
}

TestBatch make_batch(const TestModel& model, std::int64_t count, at::ScalarType type, std::uint64_t seed) {
  auto shape = model.input_shape;
  shape.insert(shape.begin(), count);
  const auto generator = generator_of(seed);
  return {torch::empty(shape, at::kDouble).normal_(0, 1, generator).to(type),
          torch::empty({count, 3}, at::kDouble).normal_(0, 1, generator).to(type)};
}

}  // namespace libtrain::testing
