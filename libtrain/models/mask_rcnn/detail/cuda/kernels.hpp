#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

/// Kernels of the detectors' operators, on plain memory: without torch, whose headers nvcc takes minutes for. Each is
/// queued on `stream`; errors of the launch are left for cudaGetLastError().
namespace libtrain::models::detail {

inline constexpr int kMaxMaps = 8;

/// A feature map [B, C, H, W] in either memory format; strides in elements.
struct DeviceMap {
  void* values = nullptr;
  double scale = 1;  ///< cells per pixel
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t image_stride = 0;
  std::int64_t channel_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
};

/// DeviceCrops of `count` boxes, each [channels, size, size]; their strides are of channels_last if `channels_last`.
struct DeviceCrops {
  DeviceMap maps[kMaxMaps] = {};
  int map_count = 0;
  const void* boxes = nullptr;           ///< [count, 4], of the type in which the maps are added up
  const std::int64_t* images = nullptr;  ///< [count]
  const std::int64_t* levels = nullptr;  ///< [count]; null: all from the first map
  std::int64_t count = 0;
  std::int64_t batch = 0;
  std::int64_t channels = 0;
  std::int64_t size = 0;
  std::int64_t sampling_ratio = 0;
  bool channels_last = false;
};

/// The types of the maps; sums are float, of float64 double. uint8 maps give float crops.
enum class MapType { float32, float64, bfloat16, float16, uint8 };

void launch_roi_align(const DeviceCrops& crops, MapType type, void* output, cudaStream_t stream);

/// Writes every cell of `crops.maps`, which are of the gradient's type. One thread adds up a cell, in the order of the
/// boxes: the same bits each time.
void launch_roi_align_backward(const DeviceCrops& crops, MapType type, const void* gradient, cudaStream_t stream);

/// Which of `count` boxes, sorted by falling score, non-maximum suppression keeps. `overlaps` is memory for count *
/// nms_words(count) words.
std::int64_t nms_words(std::int64_t count);
void launch_nms(const float* boxes, const std::int64_t* groups, std::int64_t count, float threshold,
                std::uint64_t* overlaps, bool* kept, cudaStream_t stream);

}  // namespace libtrain::models::detail
