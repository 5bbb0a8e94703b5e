#include <bench/workloads.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <bench/residual_mlp.hpp>
#include <bench/roberta_encoder.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/models/resnet.hpp>

namespace libtrain::bench {

namespace {

constexpr std::int64_t kClasses = 1000;
constexpr std::int64_t kMlpFeatures = 1024;
constexpr std::int64_t kMlpHidden = 2048;

struct Recipe {
  std::string_view name;
  std::int64_t default_batch;
  Workload (*make)(std::int64_t batch, std::int64_t image_size);
};

template <typename Holder>
Workload with_data(Holder model, const at::Tensor& inputs, std::int64_t batch, std::int64_t classes) {
  const auto labels = torch::randint(classes, {batch}, torch::kLong);
  return {.module = model.ptr(), .loss = [model, inputs, labels]() mutable {
            return torch::cross_entropy_loss(model->forward(inputs), labels);
          }};
}

Workload with_images(models::ResNet model, std::int64_t batch, std::int64_t image_size) {
  auto workload = with_data(std::move(model), torch::randn({batch, 3, image_size, image_size}), batch, kClasses);
  workload.takes_images = true;
  return workload;
}

Workload resnet18(std::int64_t batch, std::int64_t image_size) {
  return with_images(models::resnet18(), batch, image_size);
}

Workload resnet50(std::int64_t batch, std::int64_t image_size) {
  return with_images(models::resnet50(), batch, image_size);
}

Workload mlp(std::int64_t batch, std::int64_t /*image_size*/) {
  return with_data(torch::nn::Sequential{torch::nn::Linear(kMlpFeatures, kMlpHidden), torch::nn::ReLU(),
                                         torch::nn::Linear(kMlpHidden, kMlpHidden), torch::nn::ReLU(),
                                         torch::nn::Linear(kMlpHidden, kClasses)},
                   torch::randn({batch, kMlpFeatures}), batch, kClasses);
}

Workload roberta(std::int64_t batch, std::int64_t /*image_size*/) {
  const auto tokens = torch::randint(RobertaSizes::vocabulary, {RobertaSizes::sequence, batch}, torch::kLong);
  return with_data(RobertaEncoder(), tokens, batch, RobertaSizes::classes);
}

Workload tensors100(std::int64_t batch, std::int64_t /*image_size*/) {
  return with_data(ResidualMlp(), torch::randn({batch, ResidualMlpSizes::features}), batch, ResidualMlpSizes::features);
}

constexpr std::array kRecipes{Recipe{"resnet18", 8, resnet18}, Recipe{"resnet50", 8, resnet50}, Recipe{"mlp", 64, mlp},
                              Recipe{"roberta", 8, roberta}, Recipe{"tensors100", 64, tensors100}};

const Recipe& recipe_of(const std::string& name) {
  const auto found =
      std::find_if(kRecipes.begin(), kRecipes.end(), [&](const Recipe& recipe) { return recipe.name == name; });
  if (found != kRecipes.end()) return *found;
  throw UsageError(text("Option --workload is '", name, "': use ", workload_names(), "."));
}

}  // namespace

Workload make_workload(const std::string& name, std::int64_t batch, std::int64_t image_size) {
  return recipe_of(name).make(batch, image_size);
}

std::int64_t default_batch(const std::string& name) {
  return recipe_of(name).default_batch;
}

std::string workload_names() {
  std::string names;
  for (std::size_t index = 0; index < kRecipes.size(); ++index) {
    if (index > 0) names += index + 1 < kRecipes.size() ? ", " : " or ";
    names += kRecipes[index].name;
  }
  return names;
}

}  // namespace libtrain::bench
