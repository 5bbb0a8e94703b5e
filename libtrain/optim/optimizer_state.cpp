#include <libtrain/optim/optimizer_state.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/optim/detail/device_update.hpp>
#include <libtrain/optim/lamb.hpp>
#include <libtrain/optim/lars.hpp>

namespace libtrain::optim {

namespace {

using AnyState = torch::optim::OptimizerParamState;

constexpr std::string_view kUnknownType =
    "The state of this optimizer cannot be saved or loaded: its type is not known. Use SGD, Adam, AdamW or RMSprop of "
    "torch::optim, or an optimizer of libtrain::optim.";

// ---- The members of each kind of state. `visit(name, member, must_exist)` is called with a tensor or a step count.

template <typename Visit>
void visit_members(torch::optim::SGDParamState& state, const Visit& visit) {
  visit("momentum_buffer", state.momentum_buffer(), false);
}

template <typename Moments, typename Visit>
void visit_moments(Moments& state, const Visit& visit) {
  visit("step", state.step(), true);
  visit("exp_avg", state.exp_avg(), true);
  visit("exp_avg_sq", state.exp_avg_sq(), true);
  visit("max_exp_avg_sq", state.max_exp_avg_sq(), false);
}

template <typename Visit>
void visit_members(torch::optim::AdamParamState& state, const Visit& visit) {
  visit_moments(state, visit);
}

template <typename Visit>
void visit_members(torch::optim::AdamWParamState& state, const Visit& visit) {
  visit_moments(state, visit);
}

template <typename Visit>
void visit_members(torch::optim::RMSpropParamState& state, const Visit& visit) {
  visit("step", state.step(), true);
  visit("square_avg", state.square_avg(), true);
  visit("momentum_buffer", state.momentum_buffer(), false);
  visit("grad_avg", state.grad_avg(), false);
}

// Calls `with` with a state of the kind that the optimizer has: `kind(pointer)`, whose pointer is null.
template <typename With>
void with_kind_of(const torch::optim::Optimizer& optimizer, const With& with) {
  if (dynamic_cast<const torch::optim::SGD*>(&optimizer) != nullptr ||
      dynamic_cast<const Lars*>(&optimizer) != nullptr) {
    return with(static_cast<torch::optim::SGDParamState*>(nullptr));
  }
  if (dynamic_cast<const torch::optim::AdamW*>(&optimizer) != nullptr ||
      dynamic_cast<const Lamb*>(&optimizer) != nullptr) {
    return with(static_cast<torch::optim::AdamWParamState*>(nullptr));
  }
  if (dynamic_cast<const torch::optim::Adam*>(&optimizer) != nullptr) {
    return with(static_cast<torch::optim::AdamParamState*>(nullptr));
  }
  if (dynamic_cast<const torch::optim::RMSprop*>(&optimizer) != nullptr) {
    return with(static_cast<torch::optim::RMSpropParamState*>(nullptr));
  }
  throw UsageError(std::string(kUnknownType));
}

// ---- Names.

using Names = std::unordered_map<const c10::TensorImpl*, std::string>;

Names names_of(const torch::nn::Module& module) {
  Names names;
  for (const auto& item : module.named_parameters()) names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  return names;
}

// Calls `call(parameter, name)` for each parameter, in the order of the groups; once for one that is there several
// times, such as a tied weight, since its state has one name.
template <typename Call>
void for_each_parameter(const torch::optim::Optimizer& optimizer, const torch::nn::Module& module, const Call& call) {
  const auto names = names_of(module);
  detail::SeenParameters seen;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
      const auto name = names.find(parameter.unsafeGetTensorImpl());
      if (name == names.end()) {
        throw UsageError(text("An optimizer has a parameter of shape ", parameter.sizes(),
                              " that the module does not have, so its state has no name. Give the module whose "
                              "parameters the optimizer steps; one that was moved or loaded with torch::load has new "
                              "ones."));
      }
      call(parameter, name->second);
    }
  }
}

// ---- Loading.

// The tensors of a state by name, and which of them have been used.
class Given {
 public:
  explicit Given(const NamedTensors& state) {
    for (const auto& [name, tensor] : state) {
      if (!tensors_.emplace(name, Entry{&tensor}).second) {
        throw UsageError(text("The state of an optimizer contains '", name, "' twice."));
      }
    }
  }

  const at::Tensor* find(const std::string& name) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return nullptr;
    found->second.used = true;
    return found->second.tensor;
  }

  void require_all_used() const {
    for (const auto& [name, entry] : tensors_) {
      if (entry.used) continue;
      throw UsageError(text("The state contains '", name,
                            "', which this optimizer does not have. Load it into an optimizer of the same type and "
                            "with the same parameters."));
    }
  }

 private:
  struct Entry {
    const at::Tensor* tensor;
    bool used = false;
  };
  std::map<std::string, Entry, std::less<>> tensors_;
};

void read_member(const std::string& name, const at::Tensor& given, const at::Tensor& parameter, at::Tensor& member) {
  if (!given.defined() || given.sizes() != parameter.sizes()) {
    throw UsageError(text("The state's '", name, "' has shape ", given.defined() ? text(given.sizes()) : "undefined",
                          ", and its parameter has shape ", parameter.sizes(), "."));
  }
  member = at::empty_like(parameter, parameter.options().dtype(given.scalar_type()).requires_grad(false));
  member.copy_(given);
}

void read_member(const std::string& name, const at::Tensor& given, const at::Tensor& /*parameter*/,
                 std::int64_t& member) {
  if (!given.defined() || given.numel() != 1 || given.scalar_type() != at::kLong) {
    throw UsageError(text("The state's '", name, "' is not one int64 number."));
  }
  member = given.item<std::int64_t>();
}

// The state of one parameter; null if there is none.
template <typename Kind>
std::unique_ptr<AnyState> read_state(Given& given, const at::Tensor& parameter, const std::string& prefix) {
  auto state = std::make_unique<Kind>();
  std::string missing;
  bool exists = false;
  visit_members(*state, [&](std::string_view name, auto& member, bool must_exist) {
    const auto full = text(prefix, ".", name);
    if (const auto* const tensor = given.find(full)) {
      read_member(full, *tensor, parameter, member);
      exists = true;
    } else if (must_exist && missing.empty()) {
      missing = full;
    }
  });
  if (!exists) return nullptr;
  if (!missing.empty()) {
    throw UsageError(text("The state of parameter '", prefix, "' is incomplete: '", missing, "' is missing."));
  }
  return state;
}

}  // namespace

NamedTensors optimizer_state(const torch::optim::Optimizer& optimizer, const torch::nn::Module& module) {
  NamedTensors named;
  with_kind_of(optimizer, [&]<typename Kind>(Kind* /*kind*/) {
    detail::read_device_steps(optimizer.state());
    for_each_parameter(optimizer, module, [&](const at::Tensor& parameter, const std::string& prefix) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found == optimizer.state().end() || !found->second) return;
      auto* const kind = dynamic_cast<Kind*>(found->second.get());
      if (kind == nullptr) throw UsageError(std::string(kUnknownType));
      visit_members(*kind, [&](std::string_view name, auto& member, bool /*must_exist*/) {
        if constexpr (std::is_same_v<decltype(member), at::Tensor&>) {
          if (member.defined()) named.emplace_back(text(prefix, ".", name), member);
        } else {
          named.emplace_back(text(prefix, ".", name), at::scalar_tensor(member, at::kLong));
        }
      });
    });
  });
  return named;
}

void load_optimizer_state(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                          const NamedTensors& state) {
  const at::NoGradGuard no_grad;
  Given given{state};
  std::vector<std::pair<const at::Tensor*, std::unique_ptr<AnyState>>> states;
  with_kind_of(optimizer, [&]<typename Kind>(Kind* /*kind*/) {
    for_each_parameter(optimizer, module, [&](const at::Tensor& parameter, const std::string& prefix) {
      states.emplace_back(&parameter, read_state<Kind>(given, parameter, prefix));
    });
  });
  given.require_all_used();
  optimizer.state().clear();
  for (auto& [parameter, loaded] : states) {
    if (loaded) optimizer.state()[parameter->unsafeGetTensorImpl()] = std::move(loaded);
  }
}

}  // namespace libtrain::optim
