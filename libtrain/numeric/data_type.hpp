#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace libtrain {

/// Element types that collectives move and reduce.
enum class DataType : std::uint8_t { float32, float64, float16, bfloat16, int32, int64, uint8 };

/// How elements at equal positions are combined. `average` is the sum divided by the world size, for floating types
/// only. `minimum` and `maximum` of floating elements of which one is NaN are NaN.
enum class ReduceOp : std::uint8_t { sum, average, minimum, maximum, product };

constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::float64:
    case DataType::int64:
      return 8;
    case DataType::float32:
    case DataType::int32:
      return 4;
    case DataType::float16:
    case DataType::bfloat16:
      return 2;
    case DataType::uint8:
      return 1;
  }
  return 0;
}

constexpr bool is_floating(DataType type) {
  return type == DataType::float32 || type == DataType::float64 || type == DataType::float16 ||
         type == DataType::bfloat16;
}

std::string_view to_string(DataType type);
std::string_view to_string(ReduceOp op);

}  // namespace libtrain
