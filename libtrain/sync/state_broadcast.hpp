#pragma once

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain {

/// Copies the state of `root`'s optimizer to every rank's: momentum, moments, step counts, and the options of its
/// parameter groups with their learning rates (not defaults() for groups added later). State belongs to parameters by
/// their position in the groups. For any optimizer with save() and load(), such as those of torch::optim. Use
/// broadcast_tensors for the parameters.
///
/// All ranks must call it; the previous state is lost on all but `root`. State is moved to the device of a rank's first
/// parameter, where all of them should be. Throws UsageError, the same on all ranks, for optimizers that differ in
/// type, number of groups, or number, shapes or dtypes of parameters, before anything is changed, and for optimizers
/// that cannot be saved or loaded.
void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, Communicator& communicator, int root = 0);

namespace detail {

using Save = std::function<void(std::ostream&)>;
using Load = std::function<void(const char* data, std::size_t size)>;

/// Saves on `root`, loads on all others. Throws UsageError on all ranks, naming `what`, if either throws on any rank.
void broadcast_serialized(const std::string& what, const Save& save, const Load& load, Communicator& communicator,
                          int root);

}  // namespace detail

/// Copies `root`'s `value` to every rank, for types that torch::save and torch::load support: a tensor, a module, a
/// vector of tensors (which gets the size of `root`'s), and other types with operator<< and operator>> for archives.
/// Tensors are moved to `device`, or to their device on `root`; they get new memory, so for modules that share memory
/// with others broadcast_tensors is better, which is also faster. For plain bytes use broadcast_bytes.
///
/// All ranks must call it. Throws UsageError, the same on all ranks, for a value that cannot be saved, or loaded into a
/// rank's value, which is then in an undefined state.
template <typename T>
void broadcast_object(T& value, Communicator& communicator, int root = 0, std::optional<at::Device> device = {}) {
  static_assert(!std::is_base_of_v<torch::optim::Optimizer, T>, "Use broadcast_optimizer_state, which checks more.");
  const auto load = [&value, &device](const char* data, std::size_t size) {
    // torch::load would append.
    if constexpr (std::is_same_v<T, std::vector<at::Tensor>>) value.clear();
    torch::load(value, data, size, device);
  };
  detail::broadcast_serialized(
      "object", [&value](std::ostream& stream) { torch::save(value, stream); }, load, communicator, root);
}

}  // namespace libtrain
