#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/nn/module.h>

#include <libtrain/numeric/data_type.hpp>
#include <libtrain/sync/bucket_plan.hpp>

namespace libtrain::detail {

/// A parameter of a module, and the state of its gradient in a round.
struct ModuleParameter {
  std::string name = {};
  at::Tensor tensor = {};
  at::ScalarType type = tensor.scalar_type();  ///< for plans: the tensor's dtype at the last check_trainable()
  at::Device device = tensor.device();         ///< when the synchronizer was created

  /// In the buckets; none while the parameter is frozen.
  struct Place {
    std::size_t bucket = 0;
    std::size_t member = 0;
  };
  std::optional<Place> place = {};

  /// Which backward() of the round has reached it: none, one under no_sync(), or the one that is reduced.
  enum class Gradient { absent, accumulated, arrived };
  Gradient gradient = Gradient::absent;

  /// Whether this round's backward() will reach it, according to find_unused() and declare_unused().
  enum class Use { expected, unused_this_round, declared_unused };
  Use use = Use::expected;

  std::optional<double> ready_s = {};  ///< when its gradient last arrived, in seconds since a round's first gradient
  std::uint64_t first_bits = 0;        ///< of the first element, see remember_values()
  std::uint64_t probed_bits = 0;       ///< of an element that is a different one in each round
  std::uint32_t version = 0;           ///< of the gradient, when it arrived

  /// In this round. backward() may pass on an undefined gradient, and an optimizer may have reset an accumulated one.
  bool has_gradient() const { return gradient != Gradient::absent && tensor.grad().defined(); }
  bool has_arrived() const { return gradient == Gradient::arrived; }

  /// Why buckets cannot hold its gradient; empty if they can, or if it has none.
  std::string problem_of_gradient() const;

  /// Whether the value has changed since remember_values().
  bool was_stepped() const;
  std::string problem_of_step() const;

  void remember_gradient();

  /// Whether the gradient has been set, zeroed or exchanged since remember_gradient().
  bool gradient_was_touched() const;
};

/// The parameters of a module, from the last registered to the first, each once, with a hook on the accumulation of
/// each gradient. Frozen parameters are included, without hook and place.
class ModuleParameters {
 public:
  explicit ModuleParameters(const torch::nn::Module& module);
  ~ModuleParameters();
  ModuleParameters(const ModuleParameters&) = delete;  // hooks are removed once
  ModuleParameters& operator=(const ModuleParameters&) = delete;

  /// Called with a parameter's index before and after every accumulation of its gradient, on the thread that runs
  /// backward(). `incoming` is what autograd accumulated, undefined if others may still read it.
  struct Hooks {
    std::function<void(std::size_t)> before = {};
    std::function<void(std::size_t, const at::Tensor& incoming)> after = {};
  };

  /// Adds hooks to parameters that require a gradient, and removes those of the others. Not while a hook runs: autograd
  /// iterates over a node's hooks. Throws UsageError for a parameter that another GradientSynchronizer has.
  void hook(const Hooks& hooks);

  /// Removes all hooks.
  void unhook();

  /// Names a parameter that has lost its hooks, because it was converted to another dtype or device, or its storage was
  /// replaced (as torch::load() does); empty if there is none.
  std::string problem_of_memory() const;

  /// Updates the dtypes of trainable parameters. Throws UsageError if there are none, for a parameter on another device
  /// than `device`, for one whose gradient cannot be averaged, and for a gradient that buckets cannot hold.
  void check_trainable(const at::Device& device);

  std::size_t size() const { return parameters_.size(); }
  ModuleParameter& operator[](std::size_t index) { return parameters_[index]; }
  const ModuleParameter& operator[](std::size_t index) const { return parameters_[index]; }
  auto begin() { return parameters_.begin(); }
  auto end() { return parameters_.end(); }
  auto begin() const { return parameters_.begin(); }
  auto end() const { return parameters_.end(); }

  /// Indices of those that require a gradient.
  std::vector<std::size_t> trainable() const;

  /// Whether the parameters that require a gradient are not exactly those that have a place.
  bool trainable_set_changed() const;

  /// Throws UsageError for an unknown name.
  std::size_t index_of(const std::string& name) const;

  /// Gives the members of a plan, indices into these parameters, their places.
  void place(const std::vector<Bucket>& plan);

  /// For each bucket of a plan, the number of members that this round's backward() will reach.
  std::vector<std::size_t> count_expected(const std::vector<Bucket>& plan) const;

  /// Sets the use of the parameters with a place, by the graph behind `outputs`.
  void find_unused(const std::vector<at::Tensor>& outputs);

  /// Sets the parameters that no backward() reaches. Throws UsageError for an unknown name.
  void declare_unused(const std::vector<std::string>& names);

  /// Whether passes under no_sync() have left a gradient that the round is to average.
  bool have_accumulated() const;

  /// Begins a round.
  void forget_gradients();

  /// Remembers one element of each parameter on the host, for ModuleParameter::was_stepped(): an optimizer changes
  /// nearly all elements. Version counters of tensors do not show this, since LibTorch's optimizers bypass them.
  void remember_values(std::int64_t round);

  /// Combines one remembered element, a different one in each round, of each parameter that has a place. If it differs
  /// between ranks, so do their replicas.
  std::uint64_t digest_of_probes() const;

 private:
  struct Hooked {
    // Kept alive: otherwise autograd would create a new one, without the hooks, for every backward().
    std::shared_ptr<torch::autograd::Node> accumulator = {};
    torch::autograd::FunctionPreHook* before = nullptr;
    std::uintptr_t after = 0;

    void release();
  };
  std::vector<ModuleParameter> parameters_;
  std::vector<Hooked> hooked_;
};

/// The dtype in which a parameter's gradient is reduced: its `type`. Throws UsageError if that cannot be averaged.
DataType gradient_type(const ModuleParameter& parameter);

}  // namespace libtrain::detail
