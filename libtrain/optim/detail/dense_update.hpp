#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/numeric/detail/optimizer_steps.hpp>
#include <libtrain/optim/detail/option_checks.hpp>

// Common code of the optimizers. If possible, a parameter is updated by a kernel as flat memory, together with its
// gradient and state, which are converted to its layout; otherwise by tensor operators.

namespace libtrain::optim::detail {

using OptimizerStates = ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;

/// Whether kernels may take the parameter as flat memory: float32 or float64, on the CPU, dense, without overlap.
bool is_flat(const at::Tensor& parameter);

/// Whether two tensors of one shape have the same dtype and device and their elements in the same order in memory.
bool has_layout_of(const at::Tensor& tensor, const at::Tensor& other);

/// The parameter's gradient, undefined if it has none; in the parameter's dtype and order of elements if that is flat.
/// Throws UsageError for a sparse gradient and for one of another shape.
at::Tensor gradient_of(const at::Tensor& parameter, std::string_view optimizer);

/// Makes `state` fit its parameter: zero if it is undefined, and in the parameter's dtype, device and order of
/// elements, which may differ in a loaded state. Throws UsageError for another shape.
void prepare_state(at::Tensor& state, const at::Tensor& parameter);

/// For a parameter that was not written by torch's operators: backward() then refuses a graph from before the step.
void mark_changed(const at::Tensor& parameter);

/// A run of elements of a flat parameter.
struct Piece {
  std::size_t index = 0;
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// The number of pieces of a flat parameter. It depends on the size only, so that sums over pieces do not depend on the
/// number of threads.
std::size_t count_pieces(const at::Tensor& flat);

/// Calls `body` for all pieces, on torch's intra-op threads if there are several of both. It must not throw.
void for_each_piece(const at::Tensor& flat, c10::function_ref<void(const Piece&)> body);

/// The step-th step, counted from 1, with AdamWOptions or LambOptions.
template <typename Options>
libtrain::detail::AdamWStep adamw_step(const Options& options, std::int64_t step) {
  return {.learning_rate = options.lr(),
          .beta1 = std::get<0>(options.betas()),
          .beta2 = std::get<1>(options.betas()),
          .epsilon = options.eps(),
          .weight_decay = options.weight_decay(),
          .step = step};
}

libtrain::detail::SgdStep sgd_step(const torch::optim::SGDOptions& options);

/// adamw_update and sgd_update for flat tensors of equal size and dtype, piece by piece. `buffer` is undefined without
/// momentum.
void adamw_pieces(const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& first,
                  const at::Tensor& second, const libtrain::detail::AdamWStep& step);
void sgd_pieces(const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& buffer,
                const libtrain::detail::SgdStep& step);

/// Calls `body` with an element of a flat parameter's type.
template <typename Body>
void with_element_type(const at::Tensor& flat, const Body& body) {
  if (flat.scalar_type() == at::kFloat) return body(float{});
  return body(double{});
}

/// The state of `parameter`, created if there is none.
template <typename State>
State& state_of(OptimizerStates& states, const at::Tensor& parameter) {
  auto& state = states[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

/// The group's options. Throws UsageError if they are of another type.
template <typename Options>
const Options& options_of(const torch::optim::OptimizerParamGroup& group, std::string_view optimizer) {
  const auto* options = dynamic_cast<const Options*>(&group.options());
  if (options == nullptr) {
    throw UsageError(text("A parameter group of ", optimizer, " has options of another optimizer. Give it options of ",
                          "the type that the constructor takes, or none for its defaults."));
  }
  return *options;
}

}  // namespace libtrain::optim::detail
