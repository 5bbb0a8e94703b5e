#pragma once

#include <cstdint>

namespace libtrain::detail {

/// Replaces the columns of a row-major matrix of `rows` >= `columns` by an orthonormal basis of their span: the thin Q
/// of a Householder QR decomposition, with the signs that make the diagonal of R positive. A column that is zero, or
/// depends on those before it up to rounding, gives way to a fixed pseudo-random direction: the result is orthonormal
/// whatever the input, and a power iteration that has lost a direction finds another.
///
/// The same values give the same bits, wherever they lie in memory. Columns may have any finite length. Returns false,
/// and changes nothing, where an element is not finite. Throws UsageError for more columns than rows.
bool orthogonalize(float* matrix, std::int64_t rows, std::int64_t columns);
bool orthogonalize(double* matrix, std::int64_t rows, std::int64_t columns);

}  // namespace libtrain::detail
