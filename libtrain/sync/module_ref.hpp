#pragma once

#include <concepts>
#include <memory>
#include <type_traits>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <libtrain/base/error.hpp>

namespace libtrain {

namespace detail {

template <typename T>
concept HoldsModule = std::derived_from<T, torch::nn::Module> ||
                      std::is_base_of_v<torch::detail::ModuleHolderIndicator, std::remove_const_t<T>> ||
                      std::convertible_to<T&, std::shared_ptr<torch::nn::Module>>;

}  // namespace detail

/// A reference to a module, converted implicitly from a `torch::nn::Module&`, a module holder (TORCH_MODULE,
/// torch::nn::Linear), or a `std::shared_ptr` to a module. It does not keep the module alive. Throws UsageError for an
/// empty holder or pointer.
class ModuleRef {
 public:
  template <detail::HoldsModule T>
  ModuleRef(T& held) : module_(module_in(held)) {}  // NOLINT(google-explicit-constructor)

  torch::nn::Module& operator*() const { return module_; }

 private:
  template <typename T>
  static torch::nn::Module& module_in(T& held) {
    if constexpr (std::derived_from<T, torch::nn::Module>) {
      return held;
    } else if constexpr (std::is_base_of_v<torch::detail::ModuleHolderIndicator, std::remove_const_t<T>>) {
      if (held.is_empty()) throw UsageError("The module holder is empty. Construct the module first.");
      return *held.ptr();
    } else {
      const std::shared_ptr<torch::nn::Module> module = held;
      if (!module) throw UsageError("The pointer to the module is null. Construct the module first.");
      return *module;
    }
  }

  torch::nn::Module& module_;
};

}  // namespace libtrain
