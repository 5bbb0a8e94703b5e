#include <libtrain/numeric/data_type.hpp>

namespace libtrain {

std::string_view to_string(DataType type) {
  switch (type) {
    case DataType::float32:
      return "float32";
    case DataType::float64:
      return "float64";
    case DataType::float16:
      return "float16";
    case DataType::bfloat16:
      return "bfloat16";
    case DataType::int32:
      return "int32";
    case DataType::int64:
      return "int64";
    case DataType::uint8:
      return "uint8";
  }
  return "unknown";
}

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::average:
      return "average";
    case ReduceOp::minimum:
      return "minimum";
    case ReduceOp::maximum:
      return "maximum";
    case ReduceOp::product:
      return "product";
  }
  return "unknown";
}

}  // namespace libtrain
