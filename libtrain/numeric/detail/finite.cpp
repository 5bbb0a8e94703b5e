#include <libtrain/numeric/detail/finite.hpp>

#include <algorithm>
#include <cstdint>

#include <libtrain/base/detail/vector_clones.hpp>

namespace libtrain::detail {

namespace {

// Checked in pieces, so that the loop over one piece has no early exit and is vectorised.
constexpr std::size_t kPiece = 4096;

// An IEEE 754 number is NaN or infinite exactly if all bits of its exponent are set.
template <typename Bits>
LIBTRAIN_INLINED bool has_no_full_exponent(const void* data, std::size_t count, Bits exponent) {
  const auto* numbers = static_cast<const Bits*>(data);
  for (std::size_t begin = 0; begin < count; begin += kPiece) {
    const auto end = std::min(count, begin + kPiece);
    Bits found = 0;
    for (auto index = begin; index < end; ++index) {
      found = static_cast<Bits>(found | static_cast<Bits>((numbers[index] & exponent) == exponent));
    }
    if (found != 0) return false;
  }
  return true;
}

LIBTRAIN_VECTOR_CLONES bool check_16(const void* data, std::size_t count, std::uint16_t exponent) {
  return has_no_full_exponent<std::uint16_t>(data, count, exponent);
}

LIBTRAIN_VECTOR_CLONES bool check_32(const void* data, std::size_t count) {
  return has_no_full_exponent<std::uint32_t>(data, count, 0x7F800000u);
}

LIBTRAIN_VECTOR_CLONES bool check_64(const void* data, std::size_t count) {
  return has_no_full_exponent<std::uint64_t>(data, count, 0x7FF0000000000000ull);
}

}  // namespace

bool all_finite(const void* data, std::size_t count, DataType type) {
  switch (type) {
    case DataType::float32:
      return check_32(data, count);
    case DataType::float64:
      return check_64(data, count);
    case DataType::float16:
      return check_16(data, count, 0x7C00);
    case DataType::bfloat16:
      return check_16(data, count, 0x7F80);
    default:
      return true;
  }
}

}  // namespace libtrain::detail
