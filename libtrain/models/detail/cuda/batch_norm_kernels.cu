#include <libtrain/models/detail/cuda/batch_norm_kernels.hpp>

#include <algorithm>
#include <cstring>

#include <libtrain/models/detail/cuda/conversions.cuh>

namespace libtrain::models::detail {

namespace {

constexpr int kNormThreads = 256;
constexpr int kSumLanes = 32;     // of the kernels that finish a sum, over partial sums and over channels
constexpr int kMostColumns = 32;  // of a block, in vectors
constexpr int kRowsAtOnce = 2;    // that a thread loads before it uses the first
// Per multiprocessor: blocks that run at the same time, all of those that add up, and the most of the others.
constexpr int kResidentBlocks = 3;
constexpr int kMostBlocks = 4 * kResidentBlocks;

// 16 bytes, which a thread loads and stores at once.
template <typename T>
struct Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T values[kSize];

  __device__ static Vector load(const T* from) {
    const uint4 bytes = *reinterpret_cast<const uint4*>(from);
    Vector result;
    memcpy(result.values, &bytes, sizeof(bytes));
    return result;
  }
  __device__ void store(T* to) const {
    uint4 bytes;
    memcpy(&bytes, values, sizeof(bytes));
    *reinterpret_cast<uint4*>(to) = bytes;
  }
};

// Thread (x, y) of block (x, y) has one vector of channels of every row_step-th row.
struct MatrixGrid {
  dim3 blocks;
  dim3 threads;
};

int processors() {
  int device = 0, count = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

MatrixGrid matrix_grid(const NormShape& shape, int blocks_of_processor) {
  const std::int64_t vector = shape.type == NormType::float32 ? 4 : 8;
  const std::int64_t columns = shape.channels / vector;
  unsigned width = 1;
  while (width < kMostColumns && width < columns) width *= 2;
  const unsigned height = kNormThreads / width;
  const auto across = static_cast<unsigned>((columns + width - 1) / width);
  const std::int64_t needed = (shape.rows + height * kRowsAtOnce - 1) / (height * kRowsAtOnce);
  const std::int64_t most = std::max<std::int64_t>(1, processors() * blocks_of_processor / across);
  return {.blocks = {static_cast<unsigned>(std::clamp<std::int64_t>(needed, 1, most)), across},
          .threads = {width, height}};
}

// The place of a thread in the matrix.
template <typename T>
struct MatrixPlace {
  std::int64_t channels, rows, row_step;
  std::int64_t channel;  // the first of the thread's vector
  std::int64_t first_row;

  __device__ MatrixPlace(std::int64_t all_rows, std::int64_t all_channels)
      : channels(all_channels),
        rows(all_rows),
        row_step(static_cast<std::int64_t>(gridDim.x) * blockDim.y),
        channel((static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * Vector<T>::kSize),
        first_row(static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y) {}

  __device__ bool is_inside() const { return channel < channels; }

  // Calls load(number, index) for up to kRowsAtOnce rows and then use(number, index) for the same, until all are done.
  template <typename Load, typename Use>
  __device__ void for_rows(const Load& load, const Use& use) const {
    for (std::int64_t row = first_row; row < rows; row += kRowsAtOnce * row_step) {
#pragma unroll
      for (int number = 0; number < kRowsAtOnce; ++number) {
        if (row + number * row_step < rows) load(number, (row + number * row_step) * channels + channel);
      }
#pragma unroll
      for (int number = 0; number < kRowsAtOnce; ++number) {
        if (row + number * row_step < rows) use(number, (row + number * row_step) * channels + channel);
      }
    }
  }
};

template <int N>
__device__ void load_floats(float (&to)[N], const float* from) {
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = from[i];
}

// Adds up two numbers a channel over the rows of a block, and writes them to [2, blocks, channels].
template <typename T>
__device__ void write_partial_sums(const MatrixPlace<T>& place, const float* first, const float* second, float* to) {
  constexpr int kSize = Vector<T>::kSize;
  __shared__ float shared[kNormThreads * 2 * kSize];
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    shared[i * kNormThreads + thread] = first[i];
    shared[(kSize + i) * kNormThreads + thread] = second[i];
  }
  for (int half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y >= half) continue;
#pragma unroll
    for (int i = 0; i < 2 * kSize; ++i) {
      shared[i * kNormThreads + thread] += shared[i * kNormThreads + thread + half * blockDim.x];
    }
  }
  if (threadIdx.y != 0 || !place.is_inside()) return;
  const std::int64_t plane = gridDim.x * place.channels;
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    const std::int64_t at = blockIdx.x * place.channels + place.channel + i;
    to[at] = shared[i * kNormThreads + thread];
    to[plane + at] = shared[(kSize + i) * kNormThreads + thread];
  }
}

struct Sums {
  double first;
  double second;
};

// All threads of a block of kSumLanes x kSumLanes must call it; those of row 0 get the sums of their channel.
__device__ Sums finished_sums(const float* partial_sums, int blocks, std::int64_t channels, std::int64_t channel) {
  __shared__ double shared[2][kSumLanes][kSumLanes];
  double first = 0, second = 0;
  if (channel < channels) {
#pragma unroll 4
    for (int block = threadIdx.y; block < blocks; block += kSumLanes) {
      first += partial_sums[block * channels + channel];
      second += partial_sums[(blocks + block) * channels + channel];
    }
  }
  shared[0][threadIdx.y][threadIdx.x] = first;
  shared[1][threadIdx.y][threadIdx.x] = second;
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y >= half) continue;
    shared[0][threadIdx.y][threadIdx.x] += shared[0][threadIdx.y + half][threadIdx.x];
    shared[1][threadIdx.y][threadIdx.x] += shared[1][threadIdx.y + half][threadIdx.x];
  }
  __syncthreads();
  return {shared[0][0][threadIdx.x], shared[1][0][threadIdx.x]};
}

// Sums are of differences from the first row, so that a mean far from 0 does not cancel the variance.
template <typename T>
__global__ void __launch_bounds__(kNormThreads, kResidentBlocks)
    add_up_inputs(std::int64_t rows, std::int64_t channels, const T* __restrict__ inputs, float* partial_sums) {
  constexpr int kSize = Vector<T>::kSize;
  const MatrixPlace<T> place(rows, channels);
  float sums[kSize] = {}, squares[kSize] = {};
  if (place.is_inside()) {
    const auto origin = Vector<T>::load(inputs + place.channel);
    Vector<T> values[kRowsAtOnce];
    place.for_rows([&](int number, std::int64_t at) { values[number] = Vector<T>::load(inputs + at); },
                   [&](int number, std::int64_t) {
#pragma unroll
                     for (int i = 0; i < kSize; ++i) {
                       const float difference = widened(values[number].values[i]) - widened(origin.values[i]);
                       sums[i] += difference;
                       squares[i] = fmaf(difference, difference, squares[i]);
                     }
                   });
  }
  write_partial_sums(place, sums, squares, partial_sums);
}

template <typename T>
__global__ void __launch_bounds__(kSumLanes* kSumLanes)
    finish_statistics(NormShape shape, int blocks, NormStatistics statistics) {
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * kSumLanes + threadIdx.x;
  const Sums sums = finished_sums(statistics.partial_sums, blocks, shape.channels, channel);
  if (blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) ++*statistics.batches;
  if (threadIdx.y != 0 || channel >= shape.channels) return;
  const auto rows = static_cast<double>(shape.rows);
  const double difference = sums.first / rows;
  const double mean = static_cast<double>(widened(static_cast<const T*>(statistics.inputs)[channel])) + difference;
  // Keeps NaN, which fmax would not.
  double variance = sums.second / rows - difference * difference;
  if (variance < 0) variance = 0;
  statistics.means[channel] = static_cast<float>(mean);
  statistics.inverse_deviations[channel] = static_cast<float>(1 / sqrt(variance + statistics.epsilon));
  const auto update = [&](float& running, double value) {
    running = static_cast<float>((1 - statistics.momentum) * running + statistics.momentum * value);
  };
  update(statistics.running_means[channel], mean);
  update(statistics.running_variances[channel], variance * rows / (rows - 1));
}

template <typename T, bool kHasResiduals>
__global__ void __launch_bounds__(kNormThreads, kResidentBlocks)
    normalize(std::int64_t rows, std::int64_t channels, const T* __restrict__ inputs, const T* __restrict__ residuals,
              NormForward forward, T* __restrict__ outputs) {
  constexpr int kSize = Vector<T>::kSize;
  const MatrixPlace<T> place(rows, channels);
  if (!place.is_inside()) return;
  float means[kSize], factors[kSize], shifts[kSize];
  load_floats(means, forward.means + place.channel);
  load_floats(shifts, forward.shift + place.channel);
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    factors[i] = forward.inverse_deviations[place.channel + i] * forward.scale[place.channel + i];
  }
  Vector<T> values[kRowsAtOnce], added[kRowsAtOnce];
  place.for_rows(
      [&](int number, std::int64_t at) {
        values[number] = Vector<T>::load(inputs + at);
        if constexpr (kHasResiduals) added[number] = Vector<T>::load(residuals + at);
      },
      [&](int number, std::int64_t at) {
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
          float value = fmaf(widened(values[number].values[i]) - means[i], factors[i], shifts[i]);
          if constexpr (kHasResiduals) value += widened(added[number].values[i]);
          // Keeps NaN, which fmaxf would not.
          if (forward.is_rectified && value < 0) value = 0;
          values[number].values[i] = narrowed<T>(value);
        }
        values[number].store(outputs + at);
      });
}

// What of the gradient passes the rectifier.
template <typename T>
__device__ float passed(T gradient, float output) {
  return output <= 0 ? 0.0F : widened(gradient);
}

// kHasOutputs: the rectifier's outputs are read, and gradients with respect to the residuals are written.
template <typename T, bool kHasOutputs>
__global__ void __launch_bounds__(kNormThreads, kResidentBlocks)
    add_up_gradients(std::int64_t rows, std::int64_t channels, const T* __restrict__ gradients,
                     const T* __restrict__ inputs, const T* __restrict__ outputs, NormBackward backward,
                     T* __restrict__ to_residuals) {
  constexpr int kSize = Vector<T>::kSize;
  const MatrixPlace<T> place(rows, channels);
  float sums[kSize] = {}, products[kSize] = {};
  if (place.is_inside()) {
    float means[kSize], factors[kSize] = {}, shifts[kSize] = {};
    load_floats(means, backward.means + place.channel);
    if constexpr (!kHasOutputs) {
      load_floats(shifts, backward.shift + place.channel);
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        factors[i] = backward.inverse_deviations[place.channel + i] * backward.scale[place.channel + i];
      }
    }
    Vector<T> incoming[kRowsAtOnce], values[kRowsAtOnce], results[kRowsAtOnce];
    place.for_rows(
        [&](int number, std::int64_t at) {
          incoming[number] = Vector<T>::load(gradients + at);
          values[number] = Vector<T>::load(inputs + at);
          if constexpr (kHasOutputs) results[number] = Vector<T>::load(outputs + at);
        },
        [&](int number, std::int64_t at) {
#pragma unroll
          for (int i = 0; i < kSize; ++i) {
            const float centered = widened(values[number].values[i]) - means[i];
            float gradient = widened(incoming[number].values[i]);
            if constexpr (kHasOutputs) {
              gradient = passed(incoming[number].values[i], widened(results[number].values[i]));
              incoming[number].values[i] = narrowed<T>(gradient);
            } else if (backward.is_rectified) {
              gradient = passed(incoming[number].values[i], fmaf(centered, factors[i], shifts[i]));
            }
            sums[i] += gradient;
            products[i] = fmaf(gradient, centered, products[i]);
          }
          if constexpr (kHasOutputs) incoming[number].store(to_residuals + at);
        });
  }
  write_partial_sums(place, sums, products, backward.partial_sums);
}

__global__ void __launch_bounds__(kSumLanes* kSumLanes)
    finish_gradients(NormShape shape, int blocks, NormBackward backward) {
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * kSumLanes + threadIdx.x;
  const Sums sums = finished_sums(backward.partial_sums, blocks, shape.channels, channel);
  if (threadIdx.y != 0 || channel >= shape.channels) return;
  const auto rows = static_cast<double>(shape.rows);
  const double inverse_deviation = backward.inverse_deviations[channel];
  backward.to_scale[channel] = static_cast<float>(sums.second * inverse_deviation);
  backward.to_shift[channel] = static_cast<float>(sums.first);
  backward.mean_gradients[channel] = static_cast<float>(sums.first / rows);
  backward.mean_products[channel] = static_cast<float>(sums.second * inverse_deviation * inverse_deviation / rows);
}

// kIsRectified: the gradients are those of the rectifier's outputs, which are computed again.
template <typename T, bool kIsRectified>
__global__ void __launch_bounds__(kNormThreads, kResidentBlocks)
    differentiate(std::int64_t rows, std::int64_t channels, const T* __restrict__ gradients,
                  const T* __restrict__ inputs, NormBackward backward, T* __restrict__ to_inputs) {
  constexpr int kSize = Vector<T>::kSize;
  const MatrixPlace<T> place(rows, channels);
  if (!place.is_inside()) return;
  float means[kSize], factors[kSize], shifts[kSize], mean_gradients[kSize], mean_products[kSize];
  load_floats(means, backward.means + place.channel);
  load_floats(shifts, backward.shift + place.channel);
  load_floats(mean_gradients, backward.mean_gradients + place.channel);
  load_floats(mean_products, backward.mean_products + place.channel);
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    factors[i] = backward.inverse_deviations[place.channel + i] * backward.scale[place.channel + i];
  }
  Vector<T> incoming[kRowsAtOnce], values[kRowsAtOnce];
  place.for_rows(
      [&](int number, std::int64_t at) {
        incoming[number] = Vector<T>::load(gradients + at);
        values[number] = Vector<T>::load(inputs + at);
      },
      [&](int number, std::int64_t at) {
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
          const float centered = widened(values[number].values[i]) - means[i];
          float gradient = widened(incoming[number].values[i]);
          if constexpr (kIsRectified) {
            gradient = passed(incoming[number].values[i], fmaf(centered, factors[i], shifts[i]));
          }
          const float result = factors[i] * (gradient - mean_gradients[i] - centered * mean_products[i]);
          incoming[number].values[i] = narrowed<T>(result);
        }
        incoming[number].store(to_inputs + at);
      });
}

template <typename Work>
void with_norm_type(NormType type, const Work& work) {
  if (type == NormType::float32) return work(float{});
  if (type == NormType::bfloat16) return work(__nv_bfloat16{});
  work(__half{});
}

dim3 finishing_blocks(const NormShape& shape) {
  return {static_cast<unsigned>((shape.channels + kSumLanes - 1) / kSumLanes)};
}

}  // namespace

std::int64_t norm_partial_sums(const NormShape& shape) {
  return 2 * static_cast<std::int64_t>(matrix_grid(shape, kResidentBlocks).blocks.x) * shape.channels;
}

void launch_norm_statistics(const NormShape& shape, const NormStatistics& statistics, cudaStream_t stream) {
  const MatrixGrid grid = matrix_grid(shape, kResidentBlocks);
  with_norm_type(shape.type, [&]<typename T>(T) {
    add_up_inputs<T><<<grid.blocks, grid.threads, 0, stream>>>(
        shape.rows, shape.channels, static_cast<const T*>(statistics.inputs), statistics.partial_sums);
    finish_statistics<T><<<finishing_blocks(shape), dim3{kSumLanes, kSumLanes}, 0, stream>>>(
        shape, static_cast<int>(grid.blocks.x), statistics);
  });
}

void launch_norm(const NormShape& shape, const NormForward& forward, cudaStream_t stream) {
  const MatrixGrid grid = matrix_grid(shape, kMostBlocks);
  with_norm_type(shape.type, [&]<typename T>(T) {
    const auto kernel = forward.residuals ? normalize<T, true> : normalize<T, false>;
    kernel<<<grid.blocks, grid.threads, 0, stream>>>(shape.rows, shape.channels, static_cast<const T*>(forward.inputs),
                                                     static_cast<const T*>(forward.residuals), forward,
                                                     static_cast<T*>(forward.outputs));
  });
}

void launch_norm_backward(const NormShape& shape, const NormBackward& backward, cudaStream_t stream) {
  const MatrixGrid adding = matrix_grid(shape, kResidentBlocks), grid = matrix_grid(shape, kMostBlocks);
  with_norm_type(shape.type, [&]<typename T>(T) {
    const auto* inputs = static_cast<const T*>(backward.inputs);
    const auto* gradients = static_cast<const T*>(backward.gradients);
    auto* to_residuals = static_cast<T*>(backward.to_residuals);
    const auto add_up = to_residuals ? add_up_gradients<T, true> : add_up_gradients<T, false>;
    add_up<<<adding.blocks, adding.threads, 0, stream>>>(
        shape.rows, shape.channels, gradients, inputs, static_cast<const T*>(backward.outputs), backward, to_residuals);
    finish_gradients<<<finishing_blocks(shape), dim3{kSumLanes, kSumLanes}, 0, stream>>>(
        shape, static_cast<int>(adding.blocks.x), backward);
    const auto differentiates =
        backward.is_rectified && !to_residuals ? differentiate<T, true> : differentiate<T, false>;
    differentiates<<<grid.blocks, grid.threads, 0, stream>>>(shape.rows, shape.channels,
                                                             to_residuals ? to_residuals : gradients, inputs, backward,
                                                             static_cast<T*>(backward.to_inputs));
  });
}

}  // namespace libtrain::models::detail
