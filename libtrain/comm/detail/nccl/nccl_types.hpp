#pragma once

#include <nccl.h>

#include <libtrain/numeric/data_type.hpp>

namespace libtrain::detail {

constexpr ncclDataType_t to_nccl(DataType type) {
  switch (type) {
    case DataType::float32:
      return ncclFloat32;
    case DataType::float64:
      return ncclFloat64;
    case DataType::float16:
      return ncclFloat16;
    case DataType::bfloat16:
      return ncclBfloat16;
    case DataType::int32:
      return ncclInt32;
    case DataType::int64:
      return ncclInt64;
    case DataType::uint8:
      return ncclUint8;
  }
  return ncclNumTypes;
}

constexpr ncclRedOp_t to_nccl(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::average:
      return ncclAvg;
    case ReduceOp::minimum:
      return ncclMin;
    case ReduceOp::maximum:
      return ncclMax;
    case ReduceOp::product:
      return ncclProd;
  }
  return ncclNumOps;
}

}  // namespace libtrain::detail
