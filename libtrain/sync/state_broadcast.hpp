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

/// Gives every rank's optimizer the state of `root`'s: momentum, moments, step counts, and the options of its parameter
/// groups with their learning rates (not defaults() for groups added later). State belongs to parameters by their
/// position in the groups. For any optimizer with save() and load(), such as those of torch::optim; parameters
/// themselves travel with broadcast_tensors.
///
/// All ranks must call it; what optimizers had before is forgotten on all but `root`. State goes to the device of a
/// rank's first parameter, where all of them should be. Throws UsageError, the same on all ranks, for optimizers that
/// differ in type, number of groups, or number, shapes or dtypes of parameters, before anything is changed, and for
/// those that cannot be saved or loaded.
void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, Communicator& communicator, int root = 0);

namespace detail {

using Save = std::function<void(std::ostream&)>;
using Load = std::function<void(const char* data, std::size_t size)>;

/// Saves on `root`, loads on all others. Throws UsageError on all ranks for what either threw on any, naming `what`.
void broadcast_serialized(const std::string& what, const Save& save, const Load& load, Communicator& communicator,
                          int root);

}  // namespace detail

/// Gives every rank's `value` what `root`'s holds, for whatever torch::save and torch::load take: a tensor, a module, a
/// vector of tensors (which gets as many as `root`'s has), and types of your own with operator<< and operator>> for
/// archives. Tensors go to `device`, or to the one they were on at `root`; they get new memory, so that modules whose
/// memory others share are better served by broadcast_tensors, which is also faster. Plain bytes: broadcast_bytes.
///
/// All ranks must call it. Throws UsageError, the same on all ranks, for what cannot be saved, or loaded into what a
/// rank has; that rank's value is then in an undefined state.
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
