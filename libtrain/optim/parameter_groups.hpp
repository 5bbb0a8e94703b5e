#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

namespace libtrain::optim {

// A prefix, in all functions of this file, is a name in named_parameters() of the module, or the names of modules up to
// a dot: "layer1" and "layer1." select "layer1.0.conv1.weight", but not "layer10.0.conv1.weight"; "" selects all. A
// parameter that two modules share is selected by each of its names. A prefix that selects no parameter throws
// UsageError: a misspelt name must not change the training without notice.

/// The learning rate of a part of a model.
struct RateFactor {
  std::string prefix;
  double factor = 1;  ///< times the rate of the optimizer's options; finite, 0 or more
};

struct ParameterGroupOptions {
  /// Apply weight decay to parameters of at most one dimension, too: biases, and the weights of normalization layers.
  bool decay_one_dimensional = false;
  /// Prefixes of other parameters without weight decay, such as {"embedding", "position"}.
  std::vector<std::string> without_decay = {};
  /// Other learning rates than that of the optimizer's options, such as {{"backbone", 0.1}}. Of several prefixes of a
  /// name the longest counts: {{"encoder", 0.5}, {"encoder.layer0", 0.25}}.
  std::vector<RateFactor> rate_factors = {};
};

namespace detail {

/// Parameters that an optimizer treats alike.
struct ParameterGroup {
  std::vector<at::Tensor> parameters;
  double rate;
  double weight_decay;
};

/// `rate` and `weight_decay` are those of the optimizer's options. Throws UsageError as parameter_groups().
std::vector<ParameterGroup> divide_parameters(const torch::nn::Module& module, const ParameterGroupOptions& division,
                                              double rate, double weight_decay);

}  // namespace detail

/// Divides the module's parameters into groups for an optimizer: by default without weight decay for biases and
/// normalization layers.
///
///     const auto options = torch::optim::AdamWOptions(3e-4).weight_decay(0.05);
///     const auto groups = optim::parameter_groups(*model, options, {.rate_factors = {{"backbone", 0.1}}});
///     optim::FusedAdamW adamw{groups, options};
///     optim::LearningRate rate{adamw, optim::learning_rates(groups), schedule};
///
/// `options` are those of the optimizer that gets the groups: of SGD, Adam, AdamW and others of torch::optim with a
/// weight decay, or of those in libtrain::optim. Each group has a copy of them with its own learning rate and weight
/// decay. Every parameter is in one group, also a frozen one, which an optimizer does not change while it has no
/// gradient. Groups are in descending order of learning rate, then of weight decay; the parameters of a group are in
/// the order of named_parameters().
///
/// Throws UsageError for a module without parameters, for a prefix that selects none or is given twice for rates, and
/// for a rate, weight decay or factor that is not a finite number of 0 or more.
template <typename Options>
std::vector<torch::optim::OptimizerParamGroup> parameter_groups(const torch::nn::Module& module, const Options& options,
                                                                const ParameterGroupOptions& division = {}) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (auto& group : detail::divide_parameters(module, division, options.get_lr(), options.weight_decay())) {
    auto of_group = std::make_unique<Options>(options);
    of_group->set_lr(group.rate);
    of_group->weight_decay(group.weight_decay);
    groups.emplace_back(std::move(group.parameters), std::move(of_group));
  }
  return groups;
}

/// The learning rate of each group, for the base rates of LearningRate. Throws UsageError for a group without options.
std::vector<double> learning_rates(const std::vector<torch::optim::OptimizerParamGroup>& groups);

/// Stops the training of the parameters that have one of the prefixes, by default of all: they no longer require a
/// gradient, and lose the one that they have. Fine-tuning the last layer of a ResNet:
///
///     optim::freeze(*model);
///     optim::unfreeze(*model, {"fc"});
///
/// Call both between a step (and zero_grad()) and the next forward pass, on all ranks. Buffers do not change: batch
/// norms in training mode go on to update their running statistics; call eval() of those modules after each train() of
/// the model. Throws UsageError, and changes nothing, for a prefix that selects no parameter.
void freeze(torch::nn::Module& module, const std::vector<std::string>& prefixes = {""});

/// Trains the parameters that have one of the prefixes, by default all. Throws as freeze().
void unfreeze(torch::nn::Module& module, const std::vector<std::string>& prefixes = {""});

}  // namespace libtrain::optim
