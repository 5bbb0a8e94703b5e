#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/modules/container/any.h>

#include <libtrain/models/image_classifier.hpp>

namespace libtrain::models {

/// What programs set of any model that they know by its name.
struct ModelOptions {
  std::int64_t classes = 1000;
  std::int64_t input_channels = 3;
  bool zero_init_residual = false;
  double dropout = 0;
  std::function<torch::nn::AnyModule(std::int64_t channels)> norm = {};  ///< as ResNetOptions::norm
};

using MakeModel = std::function<std::shared_ptr<ImageClassifier>(const ModelOptions& options)>;

/// Adds a model of the program's own, before the first thread calls make_model(). Throws std::invalid_argument for an
/// empty name, and for one that is taken.
///
///     lt::models::add_model("my_network", [](const lt::models::ModelOptions& options) {
///       return std::make_shared<MyNetworkImpl>(options.classes);
///     });
void add_model(const std::string& name, MakeModel make);

/// A new model: one of torchvision's ResNets under its name there, such as "resnet50"; "resnet8" or "resnet20" for
/// small images; "horovod_mnist" or "pytorch_mnist", which need 10 classes and 1 input channel and ignore the other
/// options; or one of add_model(). Throws std::invalid_argument for another name, with those that there are, and as
/// the model does.
std::shared_ptr<ImageClassifier> make_model(const std::string& name, const ModelOptions& options = {});

/// Sorted.
std::vector<std::string> model_names();

}  // namespace libtrain::models
