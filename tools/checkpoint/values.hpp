#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <libtrain/checkpoint/tensor_info.hpp>

namespace libtrain::checkpoint_tool {

// Elements of tensors as numbers. A complex number is two values. Floating-point types of fewer than 16 bits have no
// values here: what their bits mean depends on scales that other tensors have.

/// float16, bfloat16, float32, float64, complex64 and complex128.
bool has_fractions(ElementType type);

/// complex64 and complex128.
bool is_complex(ElementType type);

/// A floating-point type of fewer than 16 bits.
bool is_scaled(ElementType type);

/// The values of `type` in `bytes` bytes; bytes, if it has none.
std::uint64_t count_values(ElementType type, std::uint64_t bytes);

struct Difference {
  std::uint64_t count = 0;                      ///< values whose bits differ: a NaN equals a NaN of the same bits
  std::uint64_t first = 0;                      ///< position of the first one, row-major
  std::uint64_t not_finite = 0;                 ///< those of the `count` that are NaN or infinite on either side
  std::optional<double> largest_absolute = {};  ///< among the others
  std::optional<double> largest_relative = {};  ///< likewise: |a - b| / max(|a|, |b|)
};

/// Compares two tensors of one type and size.
Difference difference_between(ElementType type, std::span<const std::byte> first, std::span<const std::byte> second);

/// The values of a tensor whose type has fractions.
std::vector<double> read_values(ElementType type, std::span<const std::byte> from);

/// Adds the values of such a tensor to `sums`, which has as many.
void add_values(ElementType type, std::span<const std::byte> from, std::span<double> sums);

/// Rounds each value once to the nearest of such a type, ties to even. Returns how many finite ones became infinite.
std::uint64_t store_values(std::span<const double> values, ElementType type, std::vector<std::byte>& to);

}  // namespace libtrain::checkpoint_tool
