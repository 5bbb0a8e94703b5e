#include <libtrain/sync/sync_batch_norm.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/functional/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/detail/sync_batch_norm_function.hpp>

namespace libtrain {

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& the_options,
                                     std::shared_ptr<Communicator> communicator)
    : NormImplBase(the_options), state_(std::make_shared<detail::SyncBatchNormState>()) {
  if (communicator == nullptr) {
    throw UsageError("SyncBatchNorm was given no communicator. Pass a separate one, such as split(0, rank()) returns.");
  }
  state_->communicator = std::move(communicator);
}

void SyncBatchNormImpl::_check_input_dim(const at::Tensor& input) {
  if (input.dim() < 2 || input.dim() > 5 || input.size(1) != options.num_features()) {
    throw UsageError(text("SyncBatchNorm of ", options.num_features(), " channels was given a tensor of shape ",
                          input.sizes(), ". Pass [N, ", options.num_features(), ", ...] with 2 to 5 dimensions."));
  }
  if (!at::isFloatingType(input.scalar_type())) {
    throw UsageError(text("SyncBatchNorm takes float32, float64, float16 or bfloat16, not ", input.scalar_type(),
                          ". Convert the input first."));
  }
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  _check_input_dim(input);
  if (!is_training()) return normalize_alone(input, !options.track_running_stats(), 0);
  auto& communicator = *state_->communicator;
  if (communicator.world_size() == 1) {
    const auto channels = static_cast<double>(std::max<std::int64_t>(input.size(1), 1));
    detail::require_more_than_one_value(static_cast<double>(input.numel()) / channels, communicator);
    return normalize_alone(input, true, count_batch());
  }
  const auto dense = input.contiguous(input.suggest_memory_format());
  const auto statistics = detail::batch_statistics(dense, communicator);
  update_running_statistics(statistics);
  return detail::sync_batch_norm(dense, weight.defined() ? weight : at::ones_like(statistics.mean),
                                 bias.defined() ? bias : at::zeros_like(statistics.mean), statistics, options.eps(),
                                 state_);
}

at::Tensor SyncBatchNormImpl::normalize_alone(const at::Tensor& input, bool by_batch, double momentum) const {
  return torch::nn::functional::batch_norm(
      input, running_mean, running_var,
      torch::nn::functional::BatchNormFuncOptions().weight(weight).bias(bias).training(by_batch).momentum(momentum).eps(
          options.eps()));
}

// The weight of the batch in the running statistics; without a momentum they are the mean over all batches.
double SyncBatchNormImpl::count_batch() {
  if (!options.track_running_stats()) return 0;
  num_batches_tracked += 1;
  if (options.momentum().has_value()) return *options.momentum();
  if (state_->communicator->is_recording()) {
    throw UsageError(
        "SyncBatchNorm without a momentum reads its number of batches on the host, which is not possible while a graph "
        "is recorded. Set a momentum, such as 0.1.");
  }
  return 1.0 / num_batches_tracked.item<double>();
}

void SyncBatchNormImpl::update_running_statistics(const detail::BatchStatistics& statistics) {
  if (!options.track_running_stats() || statistics.is_empty) return;
  const at::NoGradGuard no_grad;
  const double momentum = count_batch();
  const auto unbiased = statistics.variance * (statistics.count / (statistics.count - 1));
  running_mean.mul_(1 - momentum).add_(statistics.mean, momentum);
  running_var.mul_(1 - momentum).add_(unbiased, momentum);
}

void SyncBatchNormImpl::set_gradient_weight(double the_weight) {
  if (!(the_weight >= 0) || std::isinf(the_weight)) {
    throw UsageError(text("set_gradient_weight() was given ", the_weight,
                          ". Pass this rank's number of samples, or 1 if all ranks have the same weight."));
  }
  state_->gradient_weight = the_weight;
}

void SyncBatchNormImpl::share_state_of(const torch::nn::Module& batch_norm) {
  for (const auto& item : batch_norm.named_parameters(/*recurse=*/false)) parameters_[item.key()] = item.value();
  if (parameters_.contains("weight")) weight = parameters_["weight"];
  if (parameters_.contains("bias")) bias = parameters_["bias"];
  const auto others = batch_norm.named_buffers(/*recurse=*/false);
  for (auto& item : named_buffers(/*recurse=*/false)) item.value().set_data(others[item.key()]);
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "libtrain::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps() << ", momentum=";
  if (options.momentum().has_value()) {
    stream << *options.momentum();
  } else {
    stream << "None";
  }
  stream << (options.affine() ? "" : ", affine=false")
         << (options.track_running_stats() ? "" : ", track_running_stats=false") << ')';
}

namespace {

using torch::nn::AnyModule;
using torch::nn::BatchNormOptions;
using torch::nn::Module;

// std::nullopt if the module is not a batch norm. Its tensors show whether it is affine and tracks statistics: later
// changes of these options have no effect.
std::optional<BatchNormOptions> batch_norm_options(const Module& module) {
  const auto options_of = [](const auto& batch_norm) {
    auto result = batch_norm.options;
    result.affine(batch_norm.weight.defined()).track_running_stats(batch_norm.running_mean.defined());
    return result;
  };
  if (const auto* norm = module.as<torch::nn::BatchNorm1dImpl>()) return options_of(*norm);
  if (const auto* norm = module.as<torch::nn::BatchNorm2dImpl>()) return options_of(*norm);
  if (const auto* norm = module.as<torch::nn::BatchNorm3dImpl>()) return options_of(*norm);
  return {};
}

// A class derived from LibTorch's may do more than normalise.
bool is_plain_batch_norm(const Module& module) {
  const auto& type = typeid(module);
  return type == typeid(torch::nn::BatchNorm1dImpl) || type == typeid(torch::nn::BatchNorm2dImpl) ||
         type == typeid(torch::nn::BatchNorm3dImpl);
}

struct Place {
  torch::nn::SequentialImpl* sequential = nullptr;
  std::string name = {};  // of the child
  std::shared_ptr<Module> batch_norm = {};
};

struct FoundBatchNorms {
  std::vector<Place> places = {};
  std::vector<std::string> out_of_reach = {};
  std::set<const Module*> seen = {};
};

void find_batch_norms(Module& parent, const std::string& prefix, FoundBatchNorms& found) {
  if (!found.seen.insert(&parent).second) return;
  auto* const sequential = parent.as<torch::nn::Sequential>();
  for (const auto& child : parent.named_children()) {
    const auto& module = child.value();
    const auto name = prefix + child.key();
    if (!batch_norm_options(*module).has_value()) {
      find_batch_norms(*module, name + ".", found);
      continue;
    }
    const auto is_module = [&module](const AnyModule& slot) { return slot.ptr() == module; };
    const bool in_slot = sequential != nullptr && std::any_of(sequential->begin(), sequential->end(), is_module);
    if (in_slot && is_plain_batch_norm(*module)) {
      found.places.push_back({.sequential = sequential, .name = child.key(), .batch_norm = module});
    } else {
      found.out_of_reach.push_back(text("'", name, "' (a ", module->name(), " in a ", parent.name(), ")"));
    }
  }
}

void require_all_in_reach(const Module& root, const FoundBatchNorms& found) {
  constexpr std::size_t kNamed = 4;
  if (batch_norm_options(root).has_value()) {
    throw UsageError("replace_batch_norms was given a batch norm itself. Create a SyncBatchNorm instead.");
  }
  auto names = found.out_of_reach;
  if (names.empty()) return;
  if (names.size() > kNamed) {
    names.resize(kNamed);
    names.push_back(text("and ", found.out_of_reach.size() - kNamed, " more"));
  }
  throw UsageError(
      text("replace_batch_norms cannot replace ", join(names, ", "),
           ", and has changed nothing. Only a plain batch norm that is a child of a torch::nn::Sequential can be "
           "replaced; other modules call theirs through a member or a cast of a fixed type. Build the model with "
           "sync_batch_norm_factory (see the option `norm` of libtrain's ResNet), or make the member a "
           "libtrain::SyncBatchNorm or a torch::nn::AnyModule."));
}

SyncBatchNorm replacement_of(const Module& batch_norm, const std::shared_ptr<Communicator>& communicator) {
  SyncBatchNorm layer{*batch_norm_options(batch_norm), communicator};
  layer->share_state_of(batch_norm);
  layer->train(batch_norm.is_training());
  return layer;
}

}  // namespace

std::size_t replace_batch_norms(Module& root, Communicator& communicator) {
  FoundBatchNorms found;
  find_batch_norms(root, "", found);
  require_all_in_reach(root, found);
  if (found.places.empty()) return 0;
  const auto own = communicator.split(0, communicator.rank());
  // A batch norm in several places stays one layer.
  std::map<const Module*, SyncBatchNorm> layers;
  for (const auto& place : found.places) {
    const auto* const old = place.batch_norm.get();
    auto layer = layers.find(old);
    if (layer == layers.end()) layer = layers.emplace(old, replacement_of(*old, own)).first;
    for (auto& slot : *place.sequential) {
      if (slot.ptr() == place.batch_norm) slot = AnyModule(layer->second);
    }
    place.sequential->replace_module(place.name, layer->second.ptr());
  }
  return layers.size();
}

std::function<AnyModule(std::int64_t channels)> sync_batch_norm_factory(Communicator& communicator) {
  const auto own = communicator.split(0, communicator.rank());
  return [own](std::int64_t channels) { return AnyModule(SyncBatchNorm(BatchNormOptions(channels), own)); };
}

}  // namespace libtrain
