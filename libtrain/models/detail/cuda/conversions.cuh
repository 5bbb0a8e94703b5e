#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/// Between the types of tensors and those in which kernels compute.
namespace libtrain::models::detail {

template <typename T>
__device__ T widened(T value) {
  return value;
}
inline __device__ float widened(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
inline __device__ float widened(__half value) {
  return __half2float(value);
}
inline __device__ float widened(std::uint8_t value) {
  return static_cast<float>(value);
}

template <typename T, typename S>
__device__ T narrowed(S value) {
  return static_cast<T>(value);
}
template <>
inline __device__ __nv_bfloat16 narrowed(float value) {
  return __float2bfloat16(value);
}
template <>
inline __device__ __half narrowed(float value) {
  return __float2half(value);
}

}  // namespace libtrain::models::detail
