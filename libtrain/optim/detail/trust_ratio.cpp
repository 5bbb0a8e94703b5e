#include <libtrain/optim/detail/trust_ratio.hpp>

#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <libtrain/comm/detail/tensor_checks.hpp>
#include <libtrain/numeric/detail/norm.hpp>
#include <libtrain/optim/detail/dense_update.hpp>

namespace libtrain::optim::detail {

double norm_of_flat(const at::Tensor& flat) {
  std::vector<double> sums(count_pieces(flat));
  with_element_type(flat, [&]<typename T>(T) {
    const auto* const values = flat.const_data_ptr<T>();
    for_each_piece(flat, [&](const Piece& piece) {
      sums[piece.index] = libtrain::detail::sum_of_squares(values + piece.begin, piece.count,
                                                           *libtrain::detail::data_type_of(flat.scalar_type()));
    });
  });
  return std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0));
}

at::ScalarType norm_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor norm_of(const at::Tensor& tensor) {
  return at::linalg_vector_norm(tensor, 2, std::nullopt, false, norm_type(tensor.scalar_type()));
}

at::Tensor norms_of(const std::vector<at::Tensor>& tensors) {
  return at::stack(at::_foreach_norm(tensors, 2, norm_type(tensors.front().scalar_type())));
}

std::vector<at::Tensor> select(const std::vector<at::Tensor>& list, const std::vector<bool>& chosen) {
  std::vector<at::Tensor> selected;
  for (std::size_t index = 0; index < list.size(); ++index) {
    if (chosen[index]) selected.push_back(list[index]);
  }
  return selected;
}

std::vector<at::Tensor> factors_of(const std::vector<bool>& chosen, const at::Tensor& chosen_factors,
                                   const at::Tensor& other) {
  const auto of_chosen = chosen_factors.defined() ? chosen_factors.unbind() : std::vector<at::Tensor>{};
  std::vector<at::Tensor> factors;
  std::size_t next = 0;
  for (const bool is_chosen : chosen) factors.push_back(is_chosen ? of_chosen[next++] : other);
  return factors;
}

double ratio_or_one(double ratio, double left_norm, double right_norm) {
  return left_norm > 0 && right_norm > 0 ? ratio : 1.0;
}

at::Tensor ratio_or_one(const at::Tensor& ratio, const at::Tensor& left_norm, const at::Tensor& right_norm) {
  return at::where(left_norm.gt(0).logical_and(right_norm.gt(0)), ratio, at::ones_like(ratio));
}

}  // namespace libtrain::optim::detail
