#include <libtrain/numeric/detail/low_rank.hpp>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::detail {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

/// Row-major.
template <typename T>
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<T> values = {};

  T at(std::int64_t row, std::int64_t column) const { return values[static_cast<std::size_t>(row * columns + column)]; }
  T& at(std::int64_t row, std::int64_t column) { return values[static_cast<std::size_t>(row * columns + column)]; }
};

// Of full rank.
template <typename T>
Matrix<T> sample(std::int64_t rows, std::int64_t columns) {
  Matrix<T> matrix{rows, columns, std::vector<T>(static_cast<std::size_t>(rows * columns))};
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const double angle = static_cast<double>((row + 1) * (column + 1));
      matrix.at(row, column) = static_cast<T>(std::sin(1.3 * angle) + (row == column ? 2.0 : 0.0));
    }
  }
  return matrix;
}

template <typename T>
Matrix<T> orthogonalized(Matrix<T> matrix) {
  EXPECT_TRUE(orthogonalize(matrix.values.data(), matrix.rows, matrix.columns));
  return matrix;
}

template <typename T>
double product(const Matrix<T>& left, std::int64_t left_column, const Matrix<T>& right, std::int64_t right_column) {
  double sum = 0;
  for (std::int64_t row = 0; row < left.rows; ++row) {
    sum += static_cast<double>(left.at(row, left_column)) * static_cast<double>(right.at(row, right_column));
  }
  return sum;
}

// Q^T Q = 1
template <typename T>
void expect_orthonormal(const Matrix<T>& q) {
  const double tolerance = 50 * static_cast<double>(std::numeric_limits<T>::epsilon());
  for (std::int64_t i = 0; i < q.columns; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      EXPECT_NEAR(product(q, i, q, j), i == j ? 1.0 : 0.0, tolerance) << "columns " << i << " and " << j;
    }
  }
}

// What is left of a column after its projections on all columns of q, as a share of its length.
template <typename T>
double distance_to_span(const Matrix<T>& matrix, std::int64_t column, const Matrix<T>& q) {
  double squares = 0;
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    double rest = static_cast<double>(matrix.at(row, column));
    for (std::int64_t i = 0; i < q.columns; ++i) {
      rest -= static_cast<double>(q.at(row, i)) * product(q, i, matrix, column);
    }
    squares += rest * rest;
  }
  return std::sqrt(squares / product(matrix, column, matrix, column));
}

template <typename T>
constexpr double kSpanTolerance = 200 * static_cast<double>(std::numeric_limits<T>::epsilon());

template <typename T>
class Orthogonalize : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Orthogonalize, Types);

TYPED_TEST(Orthogonalize, GivesOrthonormalColumnsOfTheSameSpan) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes{{1, 1}, {7, 7}, {50, 4}, {1000, 3}, {120, 60}};
  for (const auto& [rows, columns] : sizes) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << columns);
    const auto matrix = sample<TypeParam>(rows, columns);
    const auto q = orthogonalized(matrix);
    expect_orthonormal(q);
    for (std::int64_t column = 0; column < columns; ++column) {
      EXPECT_LT(distance_to_span(matrix, column, q), kSpanTolerance<TypeParam>) << "column " << column;
      EXPECT_GT(product(q, column, matrix, column), 0.0) << "column " << column;  // the diagonal of R
    }
  }
}

// The example of https://en.wikipedia.org/wiki/QR_decomposition.
TYPED_TEST(Orthogonalize, FindsAKnownDecomposition) {
  const auto q = orthogonalized(Matrix<TypeParam>{3, 3, {12, -51, 4, 6, 167, -68, -4, 24, -41}});
  const Matrix<double> expected{
      3, 3, {6. / 7, -69. / 175, -58. / 175, 3. / 7, 158. / 175, 6. / 175, -2. / 7, 6. / 35, -33. / 35}};
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_NEAR(static_cast<double>(q.values[i]), expected.values[i],
                20 * static_cast<double>(std::numeric_limits<TypeParam>::epsilon()));
  }
}

TYPED_TEST(Orthogonalize, ReplacesColumnsThatDependOnOthers) {
  auto matrix = sample<TypeParam>(30, 4);
  for (std::int64_t row = 0; row < 30; ++row) {
    matrix.at(row, 1) = -3 * matrix.at(row, 0);
    matrix.at(row, 2) = 0;
  }
  const auto q = orthogonalized(matrix);
  expect_orthonormal(q);
  EXPECT_LT(distance_to_span(matrix, 0, q), kSpanTolerance<TypeParam>);
  EXPECT_LT(distance_to_span(matrix, 3, q), kSpanTolerance<TypeParam>);
}

// With unit vectors instead, a power iteration would never leave rows of zeros.
TYPED_TEST(Orthogonalize, ReplacesZerosByDirectionsThatMeetEveryRow) {
  const auto q = orthogonalized(Matrix<TypeParam>{40, 3, std::vector<TypeParam>(120, TypeParam{0})});
  expect_orthonormal(q);
  EXPECT_THAT(q.values, Each(::testing::Ne(TypeParam{0})));
}

TYPED_TEST(Orthogonalize, DoesNotDependOnTheLengthOfColumns) {
  const auto matrix = sample<TypeParam>(20, 3);
  const auto expected = orthogonalized(matrix);
  auto scaled = matrix;
  for (std::int64_t row = 0; row < 20; ++row) {
    scaled.at(row, 0) = std::ldexp(matrix.at(row, 0), -100);
    scaled.at(row, 2) = std::ldexp(matrix.at(row, 2), 100);
  }
  const auto q = orthogonalized(scaled);
  for (std::size_t i = 0; i < q.values.size(); ++i) EXPECT_EQ(q.values[i], expected.values[i]);
}

TYPED_TEST(Orthogonalize, GivesTheSameBitsAnywhereInMemory) {
  const auto matrix = sample<TypeParam>(33, 5);
  const auto expected = orthogonalized(matrix);
  for (std::size_t shift = 1; shift < 8; ++shift) {
    std::vector<TypeParam> memory(shift);
    memory.insert(memory.end(), matrix.values.begin(), matrix.values.end());
    EXPECT_TRUE(orthogonalize(memory.data() + shift, 33, 5));
    memory.erase(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(shift));
    EXPECT_EQ(memory, expected.values) << "shifted by " << shift;
  }
}

TYPED_TEST(Orthogonalize, LeavesWhatIsNotFiniteAsItIs) {
  for (const auto bad : {std::numeric_limits<TypeParam>::infinity(), std::numeric_limits<TypeParam>::quiet_NaN()}) {
    auto matrix = sample<TypeParam>(10, 2);
    matrix.at(4, 1) = bad;
    auto copy = matrix;
    EXPECT_FALSE(orthogonalize(copy.values.data(), 10, 2));
    EXPECT_EQ(copy.at(3, 1), matrix.at(3, 1));
    EXPECT_FALSE(std::isfinite(copy.at(4, 1)));
  }
}

TYPED_TEST(Orthogonalize, TakesMatricesWithoutColumnsAndRefusesWideOnes) {
  TypeParam value = 5;
  EXPECT_TRUE(orthogonalize(&value, 1, 0));
  EXPECT_EQ(value, TypeParam{5});
  EXPECT_THAT(message_of<UsageError>([&] { orthogonalize(&value, 0, 1); }),
              AllOf(HasSubstr("0 rows"), HasSubstr("1 columns")));
}

}  // namespace
}  // namespace libtrain::detail
