#include <libtrain/sync/detail/module_parameters.hpp>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include <torch/csrc/autograd/variable.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/splitmix.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/tensor_checks.hpp>

namespace libtrain::detail {

using torch::autograd::Node;
using torch::autograd::variable_list;

namespace {

class BeforeAccumulation : public torch::autograd::FunctionPreHook {
 public:
  BeforeAccumulation(const std::function<void(std::size_t)>& action, std::size_t index)
      : action_(action), index_(index) {}

  variable_list operator()(const variable_list& gradients) override {
    action_(index_);
    return gradients;
  }

 private:
  const std::function<void(std::size_t)> action_;
  const std::size_t index_;
};

// Its type shows other synchronizers that this one has the parameter.
class AfterAccumulation : public torch::autograd::FunctionPostHook {
 public:
  AfterAccumulation(const std::function<void(std::size_t, const at::Tensor&)>& action, std::size_t index,
                    const Node& accumulator)
      : action_(action), index_(index), accumulator_(accumulator) {}

  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
    static const at::Tensor kNothing;
    // Later hooks get the same tensor, and may read or keep it.
    const bool is_last = accumulator_.post_hooks().back().get() == this;
    action_(index_, is_last && !inputs.empty() ? inputs.front() : kNothing);
    return outputs;
  }

 private:
  const std::function<void(std::size_t, const at::Tensor&)> action_;
  const std::size_t index_;
  const Node& accumulator_;  // owns this hook
};

// The bits of an element: the first or, of a dense tensor, number `choice` (modulo the number of elements) in memory.
std::uint64_t bits_of_element(const at::Tensor& tensor, std::uint64_t choice = 0) {
  std::uint64_t bits = 0;
  if (tensor.numel() > 0 && tensor.is_cpu() && tensor.layout() == at::kStrided) {
    const auto index = tensor.is_non_overlapping_and_dense() ? choice % static_cast<std::uint64_t>(tensor.numel()) : 0;
    std::memcpy(&bits, static_cast<const char*>(tensor.const_data_ptr()) + index * tensor.itemsize(),
                std::min(tensor.itemsize(), sizeof bits));
  }
  return bits;
}

// 0 for an undefined gradient.
std::uint32_t version_of(const at::Tensor& gradient) {
  return gradient.defined() ? static_cast<std::uint32_t>(gradient._version()) + 1 : 0;
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

bool belongs_to_a_synchronizer(const Node& accumulator) {
  const auto& hooks = accumulator.post_hooks();
  return std::any_of(hooks.begin(), hooks.end(),
                     [](const auto& hook) { return dynamic_cast<const AfterAccumulation*>(hook.get()) != nullptr; });
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
  hooked_.resize(parameters_.size());
}

ModuleParameters::~ModuleParameters() {
  unhook();
}

void ModuleParameters::unhook() {
  for (auto& hooked : hooked_) hooked.release();
}

void ModuleParameters::Hooked::release() {
  if (!accumulator) return;
  accumulator->del_post_hook(after);
  std::erase_if(accumulator->pre_hooks(), [this](const auto& hook) { return hook.get() == before; });
  accumulator = nullptr;
}

void ModuleParameters::hook(const Hooks& hooks) {
  for (std::size_t index = 0; index < parameters_.size(); ++index) {  // before any hook changes
    const auto& tensor = parameters_[index].tensor;
    if (!tensor.requires_grad() || hooked_[index].accumulator != nullptr) continue;
    if (!belongs_to_a_synchronizer(*torch::autograd::impl::grad_accumulator(tensor))) continue;
    throw UsageError(text("Parameter '", parameters_[index].name,
                          "' belongs to another GradientSynchronizer, too, so its gradient would be averaged twice. "
                          "Make one synchronizer for the module that holds it."));
  }
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    auto& hooked = hooked_[index];
    const bool wanted = parameters_[index].tensor.requires_grad();
    if (wanted == (hooked.accumulator != nullptr)) continue;
    if (!wanted) {
      hooked.release();
      continue;
    }
    const auto node = torch::autograd::impl::grad_accumulator(parameters_[index].tensor);
    auto before = std::make_unique<BeforeAccumulation>(hooks.before, index);
    hooked.accumulator = node;
    hooked.before = before.get();
    node->add_pre_hook(std::move(before));
    hooked.after = node->add_post_hook(std::make_unique<AfterAccumulation>(hooks.after, index, *node));
  }
}

std::string ModuleParameters::problem_of_memory() const {
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    const auto& parameter = parameters_[index];
    const auto& tensor = parameter.tensor;
    const auto& hooked = hooked_[index].accumulator;
    if (!hooked || !tensor.requires_grad()) continue;
    if (torch::autograd::impl::try_get_grad_accumulator(tensor) == hooked) continue;
    if (tensor.device() != parameter.device || tensor.scalar_type() != parameter.type) {
      return text("Parameter '", parameter.name,
                  "' was converted to another dtype or device after the synchronizer was created, which removed its "
                  "hook. Convert the module first, then create the synchronizer.");
    }
    return text("The storage of parameter '", parameter.name,
                "' was replaced (as torch::load() does) after the synchronizer was created, which removed its hook. "
                "Load the module first, then create the synchronizer.");
  }
  return {};
}

void ModuleParameters::check_trainable(const at::Device& device) {
  const auto indices = trainable();
  if (indices.empty()) {
    throw UsageError("The module has no parameter that requires a gradient, so there is nothing to synchronise.");
  }
  for (const auto index : indices) {
    auto& parameter = parameters_[index];
    parameter.type = parameter.tensor.scalar_type();
    gradient_type(parameter);
    if (parameter.tensor.device() != device) {
      throw UsageError(text("Parameter '", parameter.name, "' is on ", parameter.tensor.device(),
                            ", but this rank's communicator averages gradients on ", device,
                            ". Move the module there first: model->to(context.device())."));
    }
    if (auto problem = parameter.problem_of_gradient(); !problem.empty()) throw UsageError(problem);
  }
}

std::vector<std::size_t> ModuleParameters::trainable() const {
  std::vector<std::size_t> indices;
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    if (parameters_[index].tensor.requires_grad()) indices.push_back(index);
  }
  return indices;
}

bool ModuleParameters::trainable_set_changed() const {
  return std::any_of(parameters_.begin(), parameters_.end(), [](const ModuleParameter& parameter) {
    return parameter.place.has_value() != parameter.tensor.requires_grad();
  });
}

std::size_t ModuleParameters::index_of(const std::string& name) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const ModuleParameter& parameter) { return parameter.name == name; });
  if (found != parameters_.end()) return static_cast<std::size_t>(found - parameters_.begin());
  throw UsageError(text("The module has no parameter '", name,
                        "'. Use a name of its named_parameters(), and for a parameter that two modules share the "
                        "first one."));
}

void ModuleParameters::place(const std::vector<Bucket>& plan) {
  for (auto& parameter : parameters_) parameter.place.reset();
  for (std::size_t bucket = 0; bucket < plan.size(); ++bucket) {
    for (std::size_t member = 0; member < plan[bucket].members.size(); ++member) {
      parameters_[plan[bucket].members[member]].place = {.bucket = bucket, .member = member};
    }
  }
}

std::vector<std::size_t> ModuleParameters::count_expected(const std::vector<Bucket>& plan) const {
  std::vector<std::size_t> counts;
  for (const auto& bucket : plan) {
    counts.push_back(
        static_cast<std::size_t>(std::count_if(bucket.members.begin(), bucket.members.end(), [this](std::size_t index) {
          return parameters_[index].use == ModuleParameter::Use::expected;
        })));
  }
  return counts;
}

void ModuleParameters::find_unused(const std::vector<at::Tensor>& outputs) {
  const auto nodes = graph_behind(outputs);
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    auto& parameter = parameters_[index];
    if (!parameter.place || parameter.use == ModuleParameter::Use::declared_unused) continue;
    const bool is_used = nodes.contains(hooked_[index].accumulator.get());
    parameter.use = is_used ? ModuleParameter::Use::expected : ModuleParameter::Use::unused_this_round;
  }
}

void ModuleParameters::declare_unused(const std::vector<std::string>& names) {
  std::vector<std::size_t> indices;
  for (const auto& name : names) indices.push_back(index_of(name));
  for (auto& parameter : parameters_) parameter.use = ModuleParameter::Use::expected;
  for (const auto index : indices) parameters_[index].use = ModuleParameter::Use::declared_unused;
}

bool ModuleParameters::have_accumulated() const {
  return std::any_of(parameters_.begin(), parameters_.end(), [](const ModuleParameter& parameter) {
    return parameter.gradient == ModuleParameter::Gradient::accumulated && parameter.has_gradient();
  });
}

void ModuleParameters::forget_gradients() {
  for (auto& parameter : parameters_) {
    parameter.gradient = ModuleParameter::Gradient::absent;
    if (parameter.use == ModuleParameter::Use::unused_this_round) parameter.use = ModuleParameter::Use::expected;
  }
}

void ModuleParameters::remember_values(std::int64_t round) {
  const auto choice = static_cast<std::uint64_t>(round) * kGoldenRatioBits >> 20;  // its multiples are spread evenly
  for (auto& parameter : parameters_) {
    parameter.first_bits = bits_of_element(parameter.tensor);
    parameter.probed_bits = bits_of_element(parameter.tensor, choice);
  }
}

std::uint64_t ModuleParameters::digest_of_probes() const {
  std::uint64_t digest = 0;
  for (const auto& parameter : parameters_) {
    if (parameter.place) digest = combine_keys(digest, parameter.probed_bits);
  }
  return digest;
}

std::string ModuleParameter::problem_of_gradient() const {
  const auto& grad = tensor.grad();
  if (!grad.defined()) return {};
  if (grad.requires_grad()) {
    return text("The gradient of parameter '", name,
                "' itself requires a gradient, which cannot be synchronised. Call backward() without create_graph.");
  }
  if (grad.layout() != at::kStrided) {
    return text("The gradient of parameter '", name,
                "' is sparse, and buckets hold dense gradients only. Make the embedding with sparse(false).");
  }
  if (grad.scalar_type() != type || grad.sizes() != tensor.sizes()) {
    return text("The gradient of parameter '", name, "' is of dtype ", grad.scalar_type(), " and shape ", grad.sizes(),
                ", but the synchronizer was created for ", type, " ", tensor.sizes(),
                ". Convert the module before the synchronizer is created.");
  }
  return {};
}

bool ModuleParameter::was_stepped() const {
  return first_bits != bits_of_element(tensor);
}

std::string ModuleParameter::problem_of_step() const {
  return text("Parameter '", name,
              "' was stepped before its gradient was averaged. Call wait() between backward() and the optimizer's "
              "step().");
}

void ModuleParameter::remember_gradient() {
  version = version_of(tensor.grad());
}

bool ModuleParameter::gradient_was_touched() const {
  return version != version_of(tensor.grad());
}

DataType gradient_type(const ModuleParameter& parameter) {
  const auto type = data_type_of(parameter.type);
  if (type && is_floating(*type)) return *type;
  throw UsageError(text("Parameter '", parameter.name, "' is of dtype ", parameter.type,
                        ", whose gradient cannot be averaged. Use float32, float64, float16 or bfloat16."));
}

}  // namespace libtrain::detail
