#include <tests/support/models.hpp>

#include <functional>
#include <numeric>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/init.h>

#include <libtrain/base/error.hpp>

#include <tests/support/device.hpp>

namespace libtrain::test {

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
  at::Tensor forward(const at::Tensor& x) { return head(torch::tanh(second(torch::silu(first(x)))).flatten(1)); }
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

// Back from the hidden units to the inputs by the very weight of the layer that led there.
struct TiedLayerImpl : torch::nn::Module {
  at::Tensor weight;
  at::Tensor bias;
  explicit TiedLayerImpl(const at::Tensor& shared)
      : weight(register_parameter("weight", shared)),
        bias(register_parameter("bias", torch::zeros({shared.size(1)}))) {}
  at::Tensor forward(const at::Tensor& x) { return x.matmul(weight) + bias; }
};
TORCH_MODULE(TiedLayer);

struct TiedNetImpl : torch::nn::Module {
  torch::nn::Linear encoder{6, 12};
  TiedLayer decoder{encoder->weight};
  torch::nn::Linear head{6, 3};
  TiedNetImpl() {
    register_module("encoder", encoder);
    register_module("decoder", decoder);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) { return head(torch::tanh(decoder(torch::tanh(encoder(x))))); }
};
TORCH_MODULE(TiedNet);

at::Generator generator_of(std::uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

template <typename Holder>
TestModel with_input(Holder model, std::vector<std::int64_t> input_shape) {
  return {[model](const at::Tensor& x) mutable { return model->forward(x); }, model.ptr(), std::move(input_shape)};
}

TestModel make_body(const std::string& kind) {
  if (kind == "mlp") {
    return with_input(torch::nn::Sequential{torch::nn::Linear(5, 16), torch::nn::Tanh(), torch::nn::Linear(16, 16),
                                            torch::nn::SiLU(), torch::nn::Linear(16, 3)},
                      {5});
  }
  if (kind == "conv") return with_input(ConvNet(), {2, 8, 8});
  if (kind == "transformer") return with_input(TransformerBlock(), {6, 8});
  if (kind == "tied") return with_input(TiedNet(), {6});
  if (kind == "batch_norm") {
    // No biases before batch norm, which would take them away again: their gradients would be rounding alone.
    return with_input(torch::nn::Sequential{torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3).bias(false)),
                                            torch::nn::BatchNorm2d(4), torch::nn::SiLU(),
                                            torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).bias(false)),
                                            torch::nn::BatchNorm2d(4), torch::nn::Tanh(), torch::nn::Flatten(),
                                            torch::nn::Linear(16, 3)},
                      {2, 6, 6});
  }
  throw UsageError("There is no test model '" + kind + "'.");
}

void add_branch(TestModel& model) {
  const auto& shape = model.input_shape;
  const auto inputs = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  const auto root = std::make_shared<torch::nn::Module>();
  root->register_module("body", model.module);
  const auto branch = root->register_module("branch", torch::nn::Linear(inputs, 3));
  model.module = root;
  model.branch = [branch](const at::Tensor& x) { return branch->forward(x.flatten(1)); };
}

}  // namespace

TestModel make_model(const std::string& kind, at::ScalarType type, std::uint64_t seed, Branch branch) {
  auto model = make_body(kind);
  if (branch == Branch::with) add_branch(model);
  model.module->to(device(), type);
  const torch::NoGradGuard no_grad;
  const auto generator = generator_of(seed);
  for (auto& parameter : model.module->parameters()) {
    // Drawn in float64 on the host, so that both precisions and all devices start from the same weights.
    parameter.copy_(torch::empty(parameter.sizes(), at::kDouble).normal_(0, 0.3, generator));
  }
  return model;
}

TestBatch make_batch(const TestModel& model, std::int64_t count, at::ScalarType type, std::uint64_t seed) {
  auto shape = model.input_shape;
  shape.insert(shape.begin(), count);
  const auto generator = generator_of(seed);
  return {torch::empty(shape, at::kDouble).normal_(0, 1, generator).to(device(), type),
          torch::empty({count, 3}, at::kDouble).normal_(0, 1, generator).to(device(), type)};
}

at::Tensor loss_of(const TestModel& model, const TestBatch& batch) {
  auto outputs = model.forward(batch.inputs);
  if (batch.through_branch.defined()) {
    const auto& rows = batch.through_branch;
    outputs = outputs.index_add(0, rows, model.branch(batch.inputs.index_select(0, rows)));
  }
  return torch::mse_loss(outputs, batch.targets);
}

}  // namespace libtrain::test
