#include <libtrain/numeric/detail/low_rank.hpp>

#include <algorithm>

#include <libtrain/base/detail/vector_clones.hpp>

namespace libtrain::detail {

namespace {

// So many columns of the product and of q, at the usual ranks, fit into the first-level cache.
constexpr std::int64_t kBlockColumns = 1024;

template <typename T>
LIBTRAIN_INLINED void multiply_block(const T* p, const T* q, T* __restrict product, std::int64_t columns,
                                     std::int64_t rank, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) product[i] = p[0] * q[i];
  for (std::int64_t k = 1; k < rank; ++k) {
    const T factor = p[k];
    const T* __restrict row = q + k * columns;
    for (std::int64_t i = 0; i < count; ++i) product[i] += factor * row[i];
  }
}

template <typename T>
LIBTRAIN_INLINED void multiply_blocks(const T* p, const T* q, T* product, std::int64_t rows, std::int64_t columns,
                                      std::int64_t rank) {
  for (std::int64_t begin = 0; begin < columns; begin += kBlockColumns) {
    const auto count = std::min(columns - begin, kBlockColumns);
    for (std::int64_t row = 0; row < rows; ++row) {
      multiply_block(p + row * rank, q + begin, product + row * columns + begin, columns, rank, count);
    }
  }
}

LIBTRAIN_VECTOR_CLONES void multiply(const float* p, const float* q, float* product, std::int64_t rows,
                                     std::int64_t columns, std::int64_t rank) {
  multiply_blocks(p, q, product, rows, columns, rank);
}

LIBTRAIN_VECTOR_CLONES void multiply(const double* p, const double* q, double* product, std::int64_t rows,
                                     std::int64_t columns, std::int64_t rank) {
  multiply_blocks(p, q, product, rows, columns, rank);
}

}  // namespace

void low_rank_product(const float* p, const float* q, float* product, std::int64_t rows, std::int64_t columns,
                      std::int64_t rank) {
  multiply(p, q, product, rows, columns, rank);
}

void low_rank_product(const double* p, const double* q, double* product, std::int64_t rows, std::int64_t columns,
                      std::int64_t rank) {
  multiply(p, q, product, rows, columns, rank);
}

}  // namespace libtrain::detail
