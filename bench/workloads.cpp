#include <bench/workloads.hpp>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/models/resnet.hpp>

namespace libtrain::bench {

namespace {

constexpr std::int64_t kClasses = 1000;

template <typename Holder>
Workload with_data(Holder model, const std::vector<std::int64_t>& shape) {
  const auto inputs = torch::randn(shape);
  const auto labels = torch::randint(kClasses, {shape.front()}, torch::kLong);
  return {model.ptr(),
          [model, inputs, labels]() mutable { return torch::cross_entropy_loss(model->forward(inputs), labels); }};
}

}  // namespace

Workload make_workload(const std::string& name, std::int64_t batch, std::int64_t image_size) {
  const std::vector<std::int64_t> images{batch, 3, image_size, image_size};
  if (name == "resnet18") return with_data(models::resnet18(), images);
  if (name == "resnet50") return with_data(models::resnet50(), images);
  if (name == "mlp") {
    return with_data(
        torch::nn::Sequential{torch::nn::Linear(1024, 2048), torch::nn::ReLU(), torch::nn::Linear(2048, 2048),
                              torch::nn::ReLU(), torch::nn::Linear(2048, kClasses)},
        {batch, 1024});
  }
  throw UsageError(text("Option --workload is '", name, "': use resnet18, resnet50 or mlp."));
}

std::int64_t default_batch(const std::string& name) {
  return name == "mlp" ? 64 : 8;
}

}  // namespace libtrain::bench
