#include <bench/workloads.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <bench/residual_mlp.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>
#include <libtrain/models/resnet.hpp>
#include <libtrain/models/roberta/roberta.hpp>
#include <libtrain/train/channels_last.hpp>

namespace libtrain::bench {

namespace {

constexpr std::int64_t kClasses = 1000;
constexpr std::int64_t kMlpFeatures = 1024;
constexpr std::int64_t kMlpHidden = 2048;
constexpr std::int64_t kObjects = 8;   // of an image
constexpr double kBranchScale = 0.25;  // the weight of the last batch norm of each bottleneck block

struct Recipe {
  std::string_view name;
  std::int64_t default_batch;
  Workload (*make)(std::int64_t batch, std::int64_t image_size, const Placement& placement);
};

template <typename Holder>
Workload with_data(Holder model, const at::Tensor& data, std::int64_t batch, std::int64_t classes,
                   const Placement& placement) {
  const auto inputs = data.to(placement.device);
  const auto labels = torch::randint(classes, {batch}, torch::kLong).to(placement.device);
  model->to(placement.device);
  return {.module = model.ptr(), .loss = [model, inputs, labels]() mutable {
            return torch::cross_entropy_loss(model->forward(inputs), labels);
          }};
}

Workload with_images(models::ResNet model, std::int64_t batch, std::int64_t image_size, const Placement& placement) {
  if (placement.format == at::MemoryFormat::ChannelsLast) to_channels_last(*model);
  const auto images = torch::randn({batch, 3, image_size, image_size}).contiguous(placement.format);
  auto workload = with_data(std::move(model), images, batch, kClasses, placement);
  workload.takes_images = true;
  return workload;
}

Workload resnet18(std::int64_t batch, std::int64_t image_size, const Placement& placement) {
  return with_images(models::resnet18(), batch, image_size, placement);
}

Workload resnet50(std::int64_t batch, std::int64_t image_size, const Placement& placement) {
  return with_images(models::resnet50(), batch, image_size, placement);
}

// Boxes of a sixteenth to half of the image's side, with masks that fill them.
std::vector<models::ObjectTargets> random_objects(std::int64_t images, std::int64_t side, c10::Device device) {
  std::vector<models::ObjectTargets> targets;
  for (std::int64_t image = 0; image < images; ++image) {
    const double smallest = static_cast<double>(side) / 16;
    const auto sides = smallest + torch::rand({kObjects, 2}) * (static_cast<double>(side) / 2 - smallest);
    const auto corners = torch::rand({kObjects, 2}) * (static_cast<double>(side) - sides);
    const auto boxes = torch::cat({corners, corners + sides}, 1);
    const auto masks = torch::zeros({kObjects, side, side}, torch::kByte);
    const auto pixels = boxes.to(torch::kLong);
    const auto edges = pixels.accessor<std::int64_t, 2>();
    for (std::int64_t k = 0; k < kObjects; ++k) {
      const auto [left, top, right, bottom] = std::array{edges[k][0], edges[k][1], edges[k][2], edges[k][3]};
      masks[k].slice(0, top, bottom).slice(1, left, right).fill_(1);
    }
    const auto labels = torch::randint(1, models::MaskRcnnOptions{}.classes, {kObjects}, torch::kLong);
    targets.push_back({boxes.to(device), labels.to(device), masks.to(device), 0});
  }
  return targets;
}

Workload mask_rcnn(std::int64_t batch, std::int64_t image_size, const Placement& placement) {
  if (image_size % 32 != 0) {
    throw UsageError(text("Option --image-size is ", image_size, ": mask_rcnn takes multiples of 32."));
  }
  models::MaskRcnn model = models::mask_rcnn_resnet50_fpn();
  // Frozen batch norms without the statistics of images let activations grow with every block.
  for (const auto& buffer : model->named_buffers()) {
    if (buffer.key().ends_with("bn3.weight")) buffer.value().fill_(kBranchScale);
  }
  if (placement.format == at::MemoryFormat::ChannelsLast) to_channels_last(*model);
  model->to(placement.device);
  const auto images = torch::randn({batch, 3, image_size, image_size}).contiguous(placement.format);
  const models::ImageBatch inputs{
      .images = images.to(placement.device),
      .sizes = std::vector(static_cast<std::size_t>(batch), models::ImageSize{image_size, image_size})};
  auto targets = random_objects(batch, image_size, placement.device);
  std::int64_t step = 0;
  const auto loss = [model, inputs, targets = std::move(targets), step]() mutable {
    for (std::size_t k = 0; k < targets.size(); ++k) {
      targets[k].seed = models::sampling_seed(1, step, static_cast<std::int64_t>(k));
    }
    ++step;
    return model->losses(inputs, targets).sum();
  };
  return {.module = model.ptr(), .loss = loss, .takes_images = true, .learning_rate = 1e-6};
}

Workload mlp(std::int64_t batch, std::int64_t /*image_size*/, const Placement& placement) {
  return with_data(torch::nn::Sequential{torch::nn::Linear(kMlpFeatures, kMlpHidden), torch::nn::ReLU(),
                                         torch::nn::Linear(kMlpHidden, kMlpHidden), torch::nn::ReLU(),
                                         torch::nn::Linear(kMlpHidden, kClasses)},
                   torch::randn({batch, kMlpFeatures}), batch, kClasses, placement);
}

// Texts of equal length.
Workload with_texts(const models::RobertaOptions& options, std::int64_t tokens, std::int64_t batch,
                    const Placement& placement) {
  const auto model = models::RobertaForClassification(options).ptr();
  const auto ids = torch::randint(4, options.vocabulary, {batch, tokens}, torch::kLong).to(placement.device);
  const auto labels = torch::randint(options.classes, {batch}, torch::kLong).to(placement.device);
  model->to(placement.device);
  return {.module = model, .loss = [=] {
            return models::classification_loss(options.task, model->forward(models::unpadded_texts(ids)), labels);
          }};
}

Workload roberta(std::int64_t batch, std::int64_t /*image_size*/, const Placement& placement) {
  return with_texts({.vocabulary = 8192, .layers = 2, .positions = 66}, 64, batch, placement);
}

Workload roberta_base(std::int64_t batch, std::int64_t /*image_size*/, const Placement& placement) {
  return with_texts(models::roberta_base(), 128, batch, placement);
}

Workload tensors100(std::int64_t batch, std::int64_t /*image_size*/, const Placement& placement) {
  return with_data(ResidualMlp(), torch::randn({batch, ResidualMlpSizes::features}), batch, ResidualMlpSizes::features,
                   placement);
}

constexpr std::array kRecipes{Recipe{"resnet18", 8, resnet18},     Recipe{"resnet50", 8, resnet50},
                              Recipe{"mask_rcnn", 2, mask_rcnn},   Recipe{"mlp", 64, mlp},
                              Recipe{"roberta", 8, roberta},       Recipe{"roberta_base", 8, roberta_base},
                              Recipe{"tensors100", 64, tensors100}};

const Recipe& recipe_of(const std::string& name) {
  const auto found =
      std::find_if(kRecipes.begin(), kRecipes.end(), [&](const Recipe& recipe) { return recipe.name == name; });
  if (found != kRecipes.end()) return *found;
  throw UsageError(text("Option --workload is '", name, "': use ", workload_names(), "."));
}

}  // namespace

Workload make_workload(const std::string& name, std::int64_t batch, std::int64_t image_size,
                       const Placement& placement) {
  return recipe_of(name).make(batch, image_size, placement);
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
