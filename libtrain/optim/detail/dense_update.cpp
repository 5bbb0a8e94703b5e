#include <libtrain/optim/detail/dense_update.hpp>

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros_like.h>

namespace libtrain::optim::detail {

namespace {

// Enough work to wake a thread for, as in torch; whole cache lines.
constexpr std::size_t kPieceElements = 32768;

// Whether `tensor`, of the parameter's shape, may be used with it: for a flat parameter, element by element in memory.
bool fits(const at::Tensor& tensor, const at::Tensor& parameter) {
  if (is_flat(parameter)) return has_layout_of(tensor, parameter);
  return tensor.scalar_type() == parameter.scalar_type() && tensor.device() == parameter.device();
}

at::Tensor fitted(const at::Tensor& tensor, const at::Tensor& parameter) {
  return at::empty_like(parameter).copy_(tensor);
}

}  // namespace

bool is_flat(const at::Tensor& parameter) {
  const auto type = parameter.scalar_type();
  return parameter.is_cpu() && parameter.layout() == at::kStrided && (type == at::kFloat || type == at::kDouble) &&
         parameter.is_non_overlapping_and_dense();
}

bool has_layout_of(const at::Tensor& tensor, const at::Tensor& other) {
  if (tensor.scalar_type() != other.scalar_type() || tensor.device() != other.device()) return false;
  if (tensor.is_neg()) return false;  // its memory has the negative values
  for (std::int64_t dimension = 0; dimension < other.dim(); ++dimension) {
    // The stride of a dimension of size 1 does not matter.
    if (other.size(dimension) > 1 && tensor.stride(dimension) != other.stride(dimension)) return false;
  }
  return true;
}

at::Tensor gradient_of(const at::Tensor& parameter, std::string_view optimizer) {
  const auto& gradient = parameter.grad();
  if (!gradient.defined()) return gradient;
  if (gradient.layout() != at::kStrided) {
    throw UsageError(text(optimizer, " takes dense gradients; one is ", gradient.layout(),
                          ". Give its parameter to another optimizer, such as torch::optim::SGD."));
  }
  if (gradient.sizes() != parameter.sizes()) {
    throw UsageError(text(optimizer, " was given a parameter of sizes ", parameter.sizes(),
                          " with a gradient of sizes ", gradient.sizes(), ". The two must be equal."));
  }
  return fits(gradient, parameter) ? gradient : fitted(gradient, parameter);
}

void prepare_state(at::Tensor& state, const at::Tensor& parameter) {
  if (!state.defined()) {
    state = at::zeros_like(parameter);
    return;
  }
  if (state.sizes() != parameter.sizes()) {
    throw UsageError(text("An optimizer's state of sizes ", state.sizes(), " belongs to a parameter of sizes ",
                          parameter.sizes(), ". Load it into an optimizer of the same parameters in the same order."));
  }
  if (!fits(state, parameter)) state = fitted(state, parameter);
}

void mark_changed(const at::Tensor& parameter) {
  parameter.unsafeGetTensorImpl()->bump_version();
}

std::size_t count_pieces(const at::Tensor& flat) {
  return (static_cast<std::size_t>(flat.numel()) + kPieceElements - 1) / kPieceElements;
}

void for_each_piece(const at::Tensor& flat, c10::function_ref<void(const Piece&)> body) {
  const auto elements = static_cast<std::size_t>(flat.numel());
  const auto pieces = count_pieces(flat);
  const auto run = [&](std::size_t first, std::size_t last) {
    for (std::size_t index = first; index < last; ++index) {
      const auto begin = index * kPieceElements;
      body({.index = index, .begin = begin, .count = std::min(kPieceElements, elements - begin)});
    }
  };
  if (pieces <= 1 || at::get_num_threads() == 1) return run(0, pieces);
  // at::parallel_for is a template that is serial unless its user is compiled with OpenMP, and linking OpenMP here
  // could add a second runtime to the process. The loop of an iterator runs on torch's own threads. Here it iterates
  // over as many bytes as there are pieces, without reading them.
  auto* const base = static_cast<char*>(flat.mutable_data_ptr());
  const auto bytes = at::from_blob(base, {static_cast<std::int64_t>(pieces)}, at::TensorOptions().dtype(at::kByte));
  auto iterator = at::TensorIterator::borrowing_nullary_op(bytes);
  const auto run_range = [&](char** data, const std::int64_t* /*strides*/, std::int64_t size, std::int64_t /*outer*/) {
    const auto first = static_cast<std::size_t>(data[0] - base);
    run(first, first + static_cast<std::size_t>(size));
  };
  iterator.for_each(run_range, 1);
}

libtrain::detail::SgdStep sgd_step(const torch::optim::SGDOptions& options) {
  return {.learning_rate = options.lr(),
          .momentum = options.momentum(),
          .dampening = options.dampening(),
          .weight_decay = options.weight_decay(),
          .nesterov = options.nesterov()};
}

void adamw_pieces(const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& first,
                  const at::Tensor& second, const libtrain::detail::AdamWStep& step) {
  with_element_type(parameter, [&]<typename T>(T) {
    auto* const values = parameter.mutable_data_ptr<T>();
    const auto* const gradients = gradient.const_data_ptr<T>();
    auto* const firsts = first.mutable_data_ptr<T>();
    auto* const seconds = second.mutable_data_ptr<T>();
    for_each_piece(parameter, [&](const Piece& piece) {
      const auto begin = piece.begin;
      libtrain::detail::adamw_update(values + begin, gradients + begin, firsts + begin, seconds + begin, piece.count,
                                     step);
    });
  });
}

void sgd_pieces(const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& buffer,
                const libtrain::detail::SgdStep& step) {
  with_element_type(parameter, [&]<typename T>(T) {
    auto* const values = parameter.mutable_data_ptr<T>();
    const auto* const gradients = gradient.const_data_ptr<T>();
    auto* const kept = buffer.defined() ? buffer.mutable_data_ptr<T>() : nullptr;
    for_each_piece(parameter, [&](const Piece& piece) {
      const auto begin = piece.begin;
      libtrain::detail::sgd_update(values + begin, gradients + begin, kept == nullptr ? nullptr : kept + begin,
                                   piece.count, step);
    });
  });
}

}  // namespace libtrain::optim::detail
