#include <libtrain/numeric/detail/orthogonalize.hpp>

#include <cmath>
#include <limits>

#include <Eigen/QR>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/numeric/detail/seeded_values.hpp>

namespace libtrain::detail {

namespace {

template <typename Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;

template <typename Scalar>
using RowMajorMap = Eigen::Map<Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

// Eigen squares what it is given: short columns would vanish, and long ones overflow. Zero stays zero.
template <typename Scalar>
void scale_to_unit_length(Matrix<Scalar>& columns) {
  for (Eigen::Index column = 0; column < columns.cols(); ++column) {
    const Scalar largest = columns.col(column).cwiseAbs().maxCoeff();
    if (largest == 0) continue;
    columns.col(column) /= largest;
    const Scalar length = columns.col(column).norm();
    columns.col(column) /= length;
  }
}

// The diagonal of R is what is left of each column outside the span of those before it. `columns` have unit length.
template <typename Scalar>
bool replace_dependent_columns(const Matrix<Scalar>& decomposition, Matrix<Scalar>& columns) {
  constexpr Scalar kNegligible = 8 * std::numeric_limits<Scalar>::epsilon();
  bool replaced = false;
  for (Eigen::Index column = 0; column < columns.cols(); ++column) {
    if (std::abs(decomposition(column, column)) > kNegligible) continue;
    for (Eigen::Index row = 0; row < columns.rows(); ++row) {
      const auto value = uniform_value(static_cast<std::uint64_t>(column), static_cast<std::uint64_t>(row));
      columns(row, column) = static_cast<Scalar>(value);
    }
    replaced = true;
  }
  return replaced;
}

template <typename Scalar>
bool orthogonalize_columns(Scalar* data, std::int64_t rows, std::int64_t columns) {
  if (columns < 0 || columns > rows) {
    throw UsageError(text("A matrix of ", rows, " rows and ", columns,
                          " columns has no orthonormal columns; give as many rows as columns, or more."));
  }
  if (columns == 0) return true;
  RowMajorMap<Scalar> matrix(data, rows, columns);
  if (!matrix.allFinite()) return false;

  // Eigen sums in an order that depends on the alignment of its operands, and its own memory is always aligned alike.
  Matrix<Scalar> work = matrix;
  scale_to_unit_length(work);
  Eigen::HouseholderQR<Matrix<Scalar>> decomposition(work);
  if (replace_dependent_columns(decomposition.matrixQR(), work)) decomposition.compute(work);
  Matrix<Scalar> basis = decomposition.householderQ() * Matrix<Scalar>::Identity(rows, columns);
  for (Eigen::Index column = 0; column < basis.cols(); ++column) {
    if (decomposition.matrixQR()(column, column) < 0) basis.col(column) *= Scalar{-1};
  }
  matrix = basis;
  return true;
}

}  // namespace

bool orthogonalize(float* matrix, std::int64_t rows, std::int64_t columns) {
  return orthogonalize_columns(matrix, rows, columns);
}

bool orthogonalize(double* matrix, std::int64_t rows, std::int64_t columns) {
  return orthogonalize_columns(matrix, rows, columns);
}

}  // namespace libtrain::detail
