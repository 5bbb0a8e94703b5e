#include <libtrain/numeric/detail/low_rank.hpp>

#include <cmath>
#include <limits>

#include <Eigen/QR>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/numeric/detail/seeded_values.hpp>

namespace libtrain::detail {

namespace {

// Float matrices, too, are decomposed in double: the templates of Eigen's decomposition compile for seconds each.
using Matrix = Eigen::MatrixXd;

// Eigen squares its input: short columns would vanish, and long ones overflow. Zero stays zero.
void scale_to_unit_length(Matrix& columns) {
  for (Eigen::Index index = 0; index < columns.cols(); ++index) {
    auto column = columns.col(index);
    const double largest = column.cwiseAbs().maxCoeff();
    if (largest == 0) continue;
    column /= largest;
    column /= column.norm();
  }
}

// The diagonal of R is the length of each column's part outside the span of those before it. `columns` have unit
// length.
bool replace_dependent_columns(const Matrix& decomposition, double negligible, Matrix& columns) {
  bool replaced = false;
  for (Eigen::Index column = 0; column < columns.cols(); ++column) {
    if (std::abs(decomposition(column, column)) > negligible) continue;
    for (Eigen::Index row = 0; row < columns.rows(); ++row) {
      columns(row, column) = uniform_value(static_cast<std::uint64_t>(column), static_cast<std::uint64_t>(row));
    }
    replaced = true;
  }
  return replaced;
}

Matrix orthonormal_basis(Matrix columns, double negligible) {
  scale_to_unit_length(columns);
  Eigen::HouseholderQR<Matrix> decomposition(columns);
  if (replace_dependent_columns(decomposition.matrixQR(), negligible, columns)) decomposition.compute(columns);
  Matrix basis = decomposition.householderQ() * Matrix::Identity(columns.rows(), columns.cols());
  for (Eigen::Index column = 0; column < basis.cols(); ++column) {
    if (decomposition.matrixQR()(column, column) < 0) basis.col(column) *= -1;
  }
  return basis;
}

template <typename Scalar>
bool orthogonalize_columns(Scalar* data, std::int64_t rows, std::int64_t columns) {
  if (columns < 0 || columns > rows) {
    throw UsageError(text("A matrix of ", rows, " rows and ", columns,
                          " columns has no orthonormal columns. Give at least as many rows as columns."));
  }
  if (columns == 0) return true;
  Eigen::Map<Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>> matrix(data, rows, columns);
  if (!matrix.allFinite()) return false;
  // Dependent columns differ by the rounding of the type in which they were computed.
  constexpr double kNegligible = 8 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
  // Eigen sums in an order that depends on the alignment of its operands: the copy is always aligned in the same way.
  matrix = orthonormal_basis(matrix.template cast<double>(), kNegligible).template cast<Scalar>();
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
