#include <libtrain/models/roberta/detail/recompute.hpp>

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace libtrain::models::detail {

namespace {

using torch::autograd::variable_list;

// The autocast of a device, as it is when this is constructed.
struct AutocastState {
  explicit AutocastState(c10::DeviceType of)
      : device(of),
        is_enabled(at::autocast::is_autocast_enabled(of)),
        type(at::autocast::get_autocast_dtype(of)),
        caches(at::autocast::is_autocast_cache_enabled()) {}

  void set() const {
    at::autocast::set_autocast_enabled(device, is_enabled);
    at::autocast::set_autocast_dtype(device, type);
    at::autocast::set_autocast_cache_enabled(caches);
  }

  c10::DeviceType device;
  bool is_enabled;
  at::ScalarType type;
  bool caches;
};

// Applies such a state, without keeping casts of weights: those that were made under NoGradGuard have no gradient.
class AutocastScope {
 public:
  explicit AutocastScope(AutocastState state) : former_(state.device) {
    state.caches = false;
    state.set();
  }
  AutocastScope(const AutocastScope&) = delete;  // it restores once
  AutocastScope& operator=(const AutocastScope&) = delete;
  ~AutocastScope() { former_.set(); }

 private:
  AutocastState former_;
};

at::Tensor generator_state(at::Generator generator) {
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(at::Generator generator, const at::Tensor& state) {
  const std::scoped_lock lock(generator.mutex());
  generator.set_state(state);
}

// Puts a device's generator into a state, and back into the former one. Without a state it does nothing.
class GeneratorScope {
 public:
  GeneratorScope(c10::Device device, const at::Tensor& state) {
    if (!state.defined()) return;
    generator_ = at::globalContext().defaultGenerator(device);
    former_ = generator_state(generator_);
    set_generator_state(generator_, state);
  }
  GeneratorScope(const GeneratorScope&) = delete;  // it restores once
  GeneratorScope& operator=(const GeneratorScope&) = delete;
  ~GeneratorScope() {
    if (former_.defined()) set_generator_state(generator_, former_);
  }

 private:
  at::Generator generator_;
  at::Tensor former_;
};

struct RecomputedLayer : torch::autograd::Node {
  RecomputedLayer(LayerFunction layer_in, const at::Tensor& states_in, const std::vector<at::Tensor>& parameters_in,
                  const at::Tensor& generator_in)
      : layer(std::move(layer_in)),
        states(states_in, /*is_output=*/false),
        autocast(states_in.device().type()),
        generator(generator_in) {
    for (const auto& each : parameters_in) parameters.emplace_back(each, /*is_output=*/false);
  }

  variable_list apply(variable_list&& gradients) override {
    variable_list results(1 + parameters.size());
    if (!gradients[0].defined()) return results;
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "Layers that are computed again have no second derivative, which create_graph asks for. Set "
                "RobertaOptions::recompute_layers to false.");
    // Leaves of their own: hooks on the parameters are for the gradients that leave this node.
    const auto leaf = [&](const at::Tensor& tensor, std::size_t place) {
      return tensor.detach().requires_grad_(task_should_compute_output(place));
    };
    variable_list leaves{leaf(states.unpack(), 0)};
    for (std::size_t k = 0; k < parameters.size(); ++k) leaves.push_back(leaf(parameters[k].unpack(), k + 1));
    at::Tensor outputs;
    {
      const c10::AutoGradMode with_gradients(true);
      const AutocastScope as_before(autocast);
      const GeneratorScope same_numbers(leaves[0].device(), generator);
      outputs = layer(leaves[0], {leaves.begin() + 1, leaves.end()});
    }
    variable_list wanted;
    std::ranges::copy_if(leaves, std::back_inserter(wanted), [](const auto& each) { return each.requires_grad(); });
    auto found = torch::autograd::grad({outputs}, wanted, {gradients[0]}, /*retain_graph=*/false,
                                       /*create_graph=*/false, /*allow_unused=*/true);
    auto next = found.begin();
    for (std::size_t k = 0; k < leaves.size(); ++k) {
      if (leaves[k].requires_grad()) results[k] = std::move(*next++);
    }
    return results;
  }

  void release_variables() override {
    states.reset_data();
    for (auto& each : parameters) each.reset_data();
  }

  std::string name() const override { return "RecomputedLayer"; }

  const LayerFunction layer;
  // Refuse to be read after a change in place, as what an operator saves does.
  torch::autograd::SavedVariable states;
  std::vector<torch::autograd::SavedVariable> parameters;
  const AutocastState autocast;
  const at::Tensor generator;  // its state
};

}  // namespace

at::Tensor recompute_in_backward(const LayerFunction& layer, const at::Tensor& states,
                                 const std::vector<at::Tensor>& parameters, bool uses_generator) {
  const bool needs_gradients =
      states.requires_grad() || std::ranges::any_of(parameters, [](const auto& each) { return each.requires_grad(); });
  if (!c10::GradMode::is_enabled() || !needs_gradients) return layer(states, parameters);
  const auto generator =
      uses_generator ? generator_state(at::globalContext().defaultGenerator(states.device())) : at::Tensor();
  const std::shared_ptr<RecomputedLayer> node(new RecomputedLayer(layer, states, parameters, generator),
                                              torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(states, parameters));
  at::Tensor outputs;
  {
    const c10::NoGradGuard no_grad;
    const AutocastScope without_cache{AutocastState(states.device().type())};
    outputs = layer(states, parameters);
  }
  torch::autograd::set_history(outputs, node);
  return outputs;
}

}  // namespace libtrain::models::detail
