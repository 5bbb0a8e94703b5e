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

/// A parameter of a module, and what a round knows of its gradient.
struct ModuleParameter {
  std::string name = {};
  at::Tensor tensor = {};
  at::ScalarType type = tensor.scalar_type();  ///< that plans go by: of the tensor when it was last checked

  /// In the buckets; none while it is frozen.
  struct Place {
    std::size_t bucket = 0;
    std::size_t member = 0;
  };
  std::optional<Place> place = {};

  /// The round's gradient: a backward() under no_sync() has reached it, or the one that is reduced.
  enum class Gradient { absent, accumulated, arrived };
  Gradient gradient = Gradient::absent;

  /// Whether this round's backward() will reach it: not if find_unused() or declare_unused() said so.
  enum class Use { expected, unused_this_round, declared_unused };
  Use use = Use::expected;

  std::optional<double> ready_s = {};  ///< when it arrived last, in seconds since the first of a backward()
  std::uint64_t sample = 0;            ///< of the values, see remember_values()
  std::uint64_t probe = 0;             ///< the same, of another element in each round
  std::uint32_t version = 0;           ///< of the gradient, when it arrived

  /// In this round. What backward() passed on may be undefined, and an optimizer may have forgotten what was
  /// accumulated.
  bool has_gradient() const { return gradient != Gradient::absent && tensor.grad().defined(); }
  bool has_arrived() const { return gradient == Gradient::arrived; }

  /// Why buckets cannot hold its gradient; nothing where they can, or it has none.
  std::string problem_of_gradient() const;

  /// Whether the value has been stepped since remember_values().
  bool was_stepped() const;

  /// Whether the gradient has been set, zeroed or exchanged since it arrived.
  void remember_gradient();
  bool gradient_was_touched() const;
};

/// The parameters of a module, from the last registered to the first, each once, with a hook where its gradient is
/// accumulated. Frozen ones are there, too: they have no hook and no place.
class ModuleParameters {
 public:
  explicit ModuleParameters(const torch::nn::Module& module);
  ~ModuleParameters();
  ModuleParameters(const ModuleParameters&) = delete;  // hooks are removed once
  ModuleParameters& operator=(const ModuleParameters&) = delete;

  /// Called with a parameter's index around every accumulation of its gradient, on the thread that runs backward();
  /// afterwards also with what autograd accumulated, undefined where others may still read that.
  struct Hooks {
    std::function<void(std::size_t)> before = {};
    std::function<void(std::size_t, const at::Tensor& incoming)> after = {};
  };

  /// Parameters that require a gradient now get hooks, others lose theirs. Throws UsageError for one that another
  /// GradientSynchronizer has.
  void hook(const Hooks& hooks);

  /// Takes all hooks away.
  void unhook();

  /// Names a parameter that has lost its hooks, because it was converted to another dtype or device, or its memory
  /// exchanged as torch::load() does; nothing without one.
  std::string problem_of_memory() const;

  /// Learns the dtypes of trainable parameters. Throws UsageError where there are none, for one whose gradient
  /// cannot be averaged, and for a gradient that buckets cannot hold.
  void check_trainable();

  std::size_t size() const { return parameters_.size(); }
  ModuleParameter& operator[](std::size_t index) { return parameters_[index]; }
  const ModuleParameter& operator[](std::size_t index) const { return parameters_[index]; }
  auto begin() { return parameters_.begin(); }
  auto end() { return parameters_.end(); }
  auto begin() const { return parameters_.begin(); }
  auto end() const { return parameters_.end(); }

  /// Indices of those that require a gradient.
  std::vector<std::size_t> trainable() const;

  /// Whether others require a gradient than those that have a place.
  bool trainable_set_changed() const;

  /// Throws UsageError for a name that there is not.
  std::size_t index_of(const std::string& name) const;

  /// Gives the members of a plan, indices into these parameters, their places.
  void place(const std::vector<Bucket>& plan);

  /// Which parameters with a place this round's backward() reaches, as the graph behind `outputs` says.
  void find_unused(const std::vector<at::Tensor>& outputs);

  /// Which ones no backward() reaches. Throws UsageError for a name that there is not.
  void declare_unused(const std::vector<std::string>& names);

  /// Whether passes under no_sync() have left a gradient that the round is to average.
  bool have_accumulated() const;

  /// Begins a round.
  void forget_gradients();

  /// Remembers one element of each parameter, and finds a parameter in which it has changed since: an optimizer steps
  /// nearly all. Tensors' version counters do not tell, since LibTorch's optimizers write past them.
  void remember_values(std::int64_t round);
  const ModuleParameter* first_stepped() const;

  /// Of one remembered element of each parameter that has a place, another one in each round: where it differs between
  /// ranks, their replicas do.
  std::uint64_t digest_of_probes() const;

 private:
  struct Hooked {
    // Kept alive: it would otherwise be made anew, without the hooks, for every backward().
    std::shared_ptr<torch::autograd::Node> accumulator = {};
    torch::autograd::FunctionPreHook* before = nullptr;
    std::uintptr_t after = 0;

    void release();
  };
  std::vector<ModuleParameter> parameters_;
  std::vector<Hooked> hooked_;
};

/// The dtype in which a parameter's gradient travels: its `type`. Throws UsageError for one that cannot be averaged.
DataType gradient_type(const ModuleParameter& parameter);

}  // namespace libtrain::detail
