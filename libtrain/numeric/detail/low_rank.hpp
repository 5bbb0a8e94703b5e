#pragma once

#include <cstdint>

// The host's part of PowerSGD: bits that are the same on all ranks whose processors are of one kind.

namespace libtrain::detail {

/// Replaces the columns of a row-major matrix of `rows` >= `columns` by an orthonormal basis of their span: the thin Q
/// of a Householder QR decomposition, with the signs that make the diagonal of R positive, computed in float64. A
/// column that is zero, or depends on those before it up to rounding of its type, is replaced by a fixed pseudo-random
/// direction: the result is orthonormal for any input, and a power iteration that has lost a direction finds another.
///
/// The same values give the same bits at any place in memory. Columns may have any finite length. Returns false, and
/// changes nothing, if an element is not finite. Throws UsageError for more columns than rows.
bool orthogonalize(float* matrix, std::int64_t rows, std::int64_t columns);
bool orthogonalize(double* matrix, std::int64_t rows, std::int64_t columns);

/// product [rows, columns] = p [rows, rank] times q [rank, columns], all row-major and rank at least 1. Unlike BLAS, it
/// computes each element by the same operations in the same order for any number of threads and any place in memory.
void low_rank_product(const float* p, const float* q, float* product, std::int64_t rows, std::int64_t columns,
                      std::int64_t rank);
void low_rank_product(const double* p, const double* q, double* product, std::int64_t rows, std::int64_t columns,
                      std::int64_t rank);

}  // namespace libtrain::detail
