#include <libtrain/models/make_model.hpp>

#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include <libtrain/models/mnist.hpp>
#include <libtrain/models/resnet.hpp>

namespace libtrain::models {

namespace {

MakeModel resnet(ResNet (*make)(ResNetOptions)) {
  return [make](const ModelOptions& options) {
    return make({.classes = options.classes,
                 .input_channels = options.input_channels,
                 .zero_init_residual = options.zero_init_residual,
                 .dropout = options.dropout,
                 .norm = options.norm})
        .ptr();
  };
}

template <typename Model>
MakeModel mnist(const char* name) {
  return [name](const ModelOptions& options) {
    if (options.classes != 10 || options.input_channels != 1) {
      throw std::invalid_argument("The model '" + std::string(name) +
                                  "' has 10 classes and 1 input channel. Set ModelOptions::classes to 10 and "
                                  "ModelOptions::input_channels to 1.");
    }
    return std::make_shared<Model>();
  };
}

std::map<std::string, MakeModel>& models() {
  static std::map<std::string, MakeModel> all{
      {"horovod_mnist", mnist<HorovodMnistNetImpl>("horovod_mnist")},
      {"pytorch_mnist", mnist<PytorchMnistNetImpl>("pytorch_mnist")},
      {"resnet101", resnet(resnet101)},
      {"resnet152", resnet(resnet152)},
      {"resnet18", resnet(resnet18)},
      {"resnet20", resnet(resnet20)},
      {"resnet34", resnet(resnet34)},
      {"resnet50", resnet(resnet50)},
      {"resnet8", resnet(resnet8)},
      {"resnext101_32x8d", resnet(resnext101_32x8d)},
      {"resnext101_64x4d", resnet(resnext101_64x4d)},
      {"resnext50_32x4d", resnet(resnext50_32x4d)},
      {"wide_resnet101_2", resnet(wide_resnet101_2)},
      {"wide_resnet50_2", resnet(wide_resnet50_2)},
  };
  return all;
}

}  // namespace

void add_model(const std::string& name, MakeModel make) {
  if (name.empty()) throw std::invalid_argument("add_model() was given an empty name. Give the model a name.");
  if (!models().emplace(name, std::move(make)).second) {
    throw std::invalid_argument("There is a model '" + name + "' already. Choose another name.");
  }
}

std::shared_ptr<ImageClassifier> make_model(const std::string& name, const ModelOptions& options) {
  if (options.classes < 1) {
    throw std::invalid_argument("ModelOptions::classes is " + std::to_string(options.classes) + ". Give at least 1.");
  }
  const auto found = models().find(name);
  if (found != models().end()) return found->second(options);
  std::string names;
  for (const auto& known : model_names()) names += (names.empty() ? "" : ", ") + known;
  throw std::invalid_argument("There is no model '" + name + "'. Choose one of " + names + ".");
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : models()) names.push_back(name);
  return names;
}

}  // namespace libtrain::models
