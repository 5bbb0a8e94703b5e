#include <libtrain/optim/detail/trust_ratio.hpp>

#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
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

at::Tensor norm_of(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::linalg_vector_norm(tensor, 2, std::nullopt, false, type);
}

double ratio_or_one(double ratio, double left_norm, double right_norm) {
  return left_norm > 0 && right_norm > 0 ? ratio : 1.0;
}

at::Tensor ratio_or_one(const at::Tensor& ratio, const at::Tensor& left_norm, const at::Tensor& right_norm) {
  return at::where(left_norm.gt(0).logical_and(right_norm.gt(0)), ratio, at::ones_like(ratio));
}

}  // namespace libtrain::optim::detail
