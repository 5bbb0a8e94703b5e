#pragma once

#include <cstdint>

namespace libtrain::detail {

/// product [rows, columns] = p [rows, rank] times q [rank, columns], all row-major and rank at least 1. Unlike BLAS,
/// each element is computed by the same operations in the same order whatever the number of threads and the place in
/// memory: ranks with equal factors and processors get equal bits.
void low_rank_product(const float* p, const float* q, float* product, std::int64_t rows, std::int64_t columns,
                      std::int64_t rank);
void low_rank_product(const double* p, const double* q, double* product, std::int64_t rows, std::int64_t columns,
                      std::int64_t rank);

}  // namespace libtrain::detail
