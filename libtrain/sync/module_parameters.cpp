#include <libtrain/sync/module_parameters.hpp>

#include <algorithm>
#include <cstring>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/tensor_checks.hpp>

namespace libtrain::detail {

using torch::autograd::Node;
using torch::autograd::variable_list;

namespace {

// Of a type of its own, so that it is known by others.
class GradientHook : public torch::autograd::FunctionPostHook {
 public:
  GradientHook(const std::function<void(std::size_t)>& on_gradient, std::size_t index)
      : on_gradient_(on_gradient), index_(index) {}

  variable_list operator()(const variable_list& outputs, const variable_list& /*inputs*/) override {
    on_gradient_(index_);
    return outputs;
  }

 private:
  const std::function<void(std::size_t)> on_gradient_;
  const std::size_t index_;
};

// The bits of the first element.
std::uint64_t sample_of(const at::Tensor& tensor) {
  std::uint64_t bits = 0;
  if (tensor.numel() > 0 && tensor.is_cpu() && tensor.layout() == at::kStrided) {
    std::memcpy(&bits, tensor.const_data_ptr(), std::min(tensor.itemsize(), sizeof bits));
  }
  return bits;
}

bool has_gradient_hook(const Node& accumulator) {
  const auto& hooks = accumulator.post_hooks();
  return std::any_of(hooks.begin(), hooks.end(),
                     [](const auto& hook) { return dynamic_cast<const GradientHook*>(hook.get()) != nullptr; });
}

}  // namespace

ModuleParameters::ModuleParameters(const torch::nn::Module& module) {
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;  // shared by two modules
    parameters_.push_back({.name = item.key(), .tensor = item.value()});
  }
  // backward() reaches the layers from the last to the first.
  std::reverse(parameters_.begin(), parameters_.end());
  hooks_.resize(parameters_.size());
}

ModuleParameters::~ModuleParameters() {
  for (auto& [accumulator, key] : hooks_) {
    if (accumulator) accumulator->del_post_hook(key);
  }
}

void ModuleParameters::hook(const std::function<void(std::size_t)>& on_gradient) {
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    auto& [accumulator, key] = hooks_[index];
    const bool wanted = parameters_[index].tensor.requires_grad();
    if (wanted == (accumulator != nullptr)) continue;
    if (!wanted) {
      accumulator->del_post_hook(key);
      accumulator = nullptr;
      continue;
    }
    const auto node = torch::autograd::impl::grad_accumulator(parameters_[index].tensor);
    if (has_gradient_hook(*node)) {
      throw UsageError(text("Parameter '", parameters_[index].name,
                            "' belongs to another GradientSynchronizer, too: its "
                            "gradient would be averaged twice. Let one synchronizer have the module that holds it."));
    }
    accumulator = node;
    key = accumulator->add_post_hook(std::make_unique<GradientHook>(on_gradient, index));
  }
}

std::vector<std::size_t> ModuleParameters::trainable() const {
  std::vector<std::size_t> indices;
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    if (parameters_[index].tensor.requires_grad()) indices.push_back(index);
  }
  return indices;
}

bool ModuleParameters::retrained() const {
  return std::any_of(parameters_.begin(), parameters_.end(), [](const ModuleParameter& parameter) {
    return parameter.planned != parameter.tensor.requires_grad();
  });
}

std::size_t ModuleParameters::index_of(const std::string& name) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const ModuleParameter& parameter) { return parameter.name == name; });
  if (found != parameters_.end()) return static_cast<std::size_t>(found - parameters_.begin());
  throw UsageError(text("The module has no parameter '", name,
                        "': use a name of its named_parameters(), and of a "
                        "parameter that two modules share the first."));
}

bool ModuleParameters::accumulates_in(std::size_t index, const std::unordered_set<const Node*>& nodes) const {
  return nodes.contains(hooks_[index].accumulator.get());
}

void ModuleParameters::remember_values() {
  for (auto& parameter : parameters_) parameter.sample = sample_of(parameter.tensor);
}

const ModuleParameter* ModuleParameters::first_changed() const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(), [](const ModuleParameter& parameter) {
    return parameter.sample != sample_of(parameter.tensor);
  });
  return found == parameters_.end() ? nullptr : &*found;
}

DataType gradient_type(const ModuleParameter& parameter) {
  const auto type = data_type_of(parameter.tensor.scalar_type());
  if (type && is_floating(*type)) return *type;
  throw UsageError(text("Parameter '", parameter.name, "' is of dtype ", parameter.tensor.scalar_type(),
                        ", whose gradient cannot be averaged: use float32, float64, float16 or bfloat16."));
}

std::unordered_set<const Node*> graph_behind(const std::vector<at::Tensor>& outputs) {
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> left;
  const auto visit = [&](const Node* node) {
    if (node != nullptr && seen.insert(node).second) left.push_back(node);
  };
  for (const auto& output : outputs) visit(output.grad_fn().get());
  while (!left.empty()) {
    const auto* node = left.back();
    left.pop_back();
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  return seen;
}

}  // namespace libtrain::detail
