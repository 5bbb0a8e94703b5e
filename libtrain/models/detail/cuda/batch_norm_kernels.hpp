#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

/// Kernels of batch_norm.hpp, on plain memory: without torch, whose headers nvcc takes minutes for. Each is queued on
/// `stream`; errors of the launch are left for cudaGetLastError().
///
/// A batch in channels_last is a matrix [rows, channels] with one row a pixel. Statistics, parameters and their
/// gradients are float, [channels]. Sums have the same bits each time: no kernel adds atomically.
namespace libtrain::models::detail {

/// Numbers of a matrix; all matrices of a call have the same type.
enum class NormType { float32, bfloat16, float16 };

/// `channels` is a multiple of kNormVector, and matrices begin at multiples of 16 bytes.
inline constexpr std::int64_t kNormVector = 8;

struct NormShape {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  NormType type = NormType::float32;
};

/// Floats of `partial_sums` of the kernels that add up columns.
std::int64_t norm_partial_sums(const NormShape& shape);

struct NormStatistics {
  const void* inputs = nullptr;
  float* partial_sums = nullptr;
  double epsilon = 0;
  double momentum = 0;
  float* means = nullptr;               ///< written
  float* inverse_deviations = nullptr;  ///< written
  float* running_means = nullptr;       ///< updated, as running_variances and batches
  float* running_variances = nullptr;
  std::int64_t* batches = nullptr;
};

/// Of each column of the batch.
void launch_norm_statistics(const NormShape& shape, const NormStatistics& statistics, cudaStream_t stream);

struct NormForward {
  const void* inputs = nullptr;
  const void* residuals = nullptr;  ///< or null
  const float* means = nullptr;
  const float* inverse_deviations = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;
  bool is_rectified = false;
  void* outputs = nullptr;  ///< written
};

void launch_norm(const NormShape& shape, const NormForward& forward, cudaStream_t stream);

struct NormBackward {
  const void* gradients = nullptr;  ///< with respect to the outputs
  const void* inputs = nullptr;
  const void* outputs = nullptr;  ///< null if there were no residuals
  const float* means = nullptr;
  const float* inverse_deviations = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;
  bool is_rectified = false;
  float* partial_sums = nullptr;
  void* to_residuals = nullptr;     ///< written, if there were rectified residuals
  float* mean_gradients = nullptr;  ///< written: of the columns
  float* mean_products = nullptr;   ///< written: of gradients and normalised inputs
  float* to_scale = nullptr;        ///< written
  float* to_shift = nullptr;        ///< written
  void* to_inputs = nullptr;        ///< written
};

void launch_norm_backward(const NormShape& shape, const NormBackward& backward, cudaStream_t stream);

}  // namespace libtrain::models::detail
