#include <libtrain/models/mask_rcnn/detail/cuda/kernels.hpp>

#include <algorithm>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace libtrain::models::detail {

namespace {

constexpr int kThreads = 256;
constexpr int kWordBits = 64;

template <typename T>
__device__ T widened(T value) {
  return value;
}
__device__ float widened(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ float widened(__half value) {
  return __half2float(value);
}
__device__ float widened(std::uint8_t value) {
  return static_cast<float>(value);
}

template <typename T, typename S>
__device__ T narrowed(S value) {
  return static_cast<T>(value);
}
template <>
__device__ __nv_bfloat16 narrowed(float value) {
  return __float2bfloat16(value);
}
template <>
__device__ __half narrowed(float value) {
  return __float2half(value);
}

// One axis of a box, as AxisBins on the host.
template <typename S>
struct Axis {
  S start;
  S bin;
  std::int64_t samples;
  std::int64_t length;

  __device__ Axis(S from, S to, std::int64_t bins, std::int64_t sampling_ratio, std::int64_t cells)
      : start(from), bin((to - from > S(1) ? to - from : S(1)) / static_cast<S>(bins)), length(cells) {
    samples = sampling_ratio > 0 ? sampling_ratio : static_cast<std::int64_t>(ceil(bin));
  }

  __device__ S at(std::int64_t number, std::int64_t sample) const {
    return start + static_cast<S>(number) * bin + (static_cast<S>(sample) + S(0.5)) * bin / static_cast<S>(samples);
  }

  __device__ bool is_outside(S place) const { return place < S(-1) || place > static_cast<S>(length); }

  // Within the cells, of which the last counts up to its outer border.
  __device__ S clamped(S place) const {
    const S last = static_cast<S>(length - 1);
    return place < S(0) ? S(0) : place > last ? last : place;
  }

  // How much of bin `number` is from `cell`.
  __device__ S weight(std::int64_t number, std::int64_t cell) const {
    S sum = 0;
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const S place = at(number, sample);
      if (is_outside(place)) continue;
      const S distance = clamped(place) - static_cast<S>(cell);
      const S share = S(1) - (distance < S(0) ? -distance : distance);
      if (share > S(0)) sum += share;
    }
    return sum / static_cast<S>(samples);
  }

  // The cells that the bins depend on.
  __device__ std::int64_t first_cell() const {
    const S place = at(0, 0);
    return static_cast<std::int64_t>(clamped(place));
  }
  __device__ std::int64_t last_cell(std::int64_t bins) const {
    const S place = clamped(at(bins - 1, samples - 1));
    const std::int64_t cell = static_cast<std::int64_t>(place) + 1;
    return cell < length ? cell : length - 1;
  }
};

template <typename S>
__device__ Axis<S> rows_of(const DeviceCrops& crops, const DeviceMap& map, const S* box) {
  const S scale = static_cast<S>(map.scale);
  return {box[1] * scale, box[3] * scale, crops.size, crops.sampling_ratio, map.height};
}

template <typename S>
__device__ Axis<S> columns_of(const DeviceCrops& crops, const DeviceMap& map, const S* box) {
  const S scale = static_cast<S>(map.scale);
  return {box[0] * scale, box[2] * scale, crops.size, crops.sampling_ratio, map.width};
}

// The place of an element of the crops, in the order of their memory.
struct Place {
  std::int64_t box, channel, row, column;

  __device__ Place(const DeviceCrops& crops, std::int64_t index) {
    if (crops.channels_last) {
      channel = index % crops.channels;
      index /= crops.channels;
    }
    column = index % crops.size;
    index /= crops.size;
    row = index % crops.size;
    index /= crops.size;
    if (!crops.channels_last) {
      channel = index % crops.channels;
      index /= crops.channels;
    }
    box = index;
  }
};

template <typename T, typename S, typename Output>
__global__ void crop(const DeviceCrops crops, Output* output) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= crops.count * crops.channels * crops.size * crops.size) return;
  const Place place(crops, index);
  const std::int64_t level = crops.levels == nullptr ? 0 : crops.levels[place.box];
  const std::int64_t image = crops.images[place.box];
  // Ends the kernel with an error, where the CPU throws.
  if (level < 0 || level >= crops.map_count || image < 0 || image >= crops.batch) __trap();
  const DeviceMap& map = crops.maps[level];
  const S* box = static_cast<const S*>(crops.boxes) + 4 * place.box;
  const Axis<S> rows = rows_of(crops, map, box);
  const Axis<S> columns = columns_of(crops, map, box);
  const T* values = static_cast<const T*>(map.values) + image * map.image_stride + place.channel * map.channel_stride;
  S sum = 0;
  for (std::int64_t i = 0; i < rows.samples; ++i) {
    const S y = rows.at(place.row, i);
    if (rows.is_outside(y)) continue;
    const S inside_y = rows.clamped(y);
    const std::int64_t top = static_cast<std::int64_t>(inside_y);
    const std::int64_t bottom = top + 1 < map.height ? top + 1 : top;
    const S down = inside_y - static_cast<S>(top);
    for (std::int64_t j = 0; j < columns.samples; ++j) {
      const S x = columns.at(place.column, j);
      if (columns.is_outside(x)) continue;
      const S inside_x = columns.clamped(x);
      const std::int64_t left = static_cast<std::int64_t>(inside_x);
      const std::int64_t right = left + 1 < map.width ? left + 1 : left;
      const S along = inside_x - static_cast<S>(left);
      const T* upper = values + top * map.row_stride;
      const T* lower = values + bottom * map.row_stride;
      sum += (S(1) - down) * ((S(1) - along) * static_cast<S>(widened(upper[left * map.column_stride])) +
                              along * static_cast<S>(widened(upper[right * map.column_stride]))) +
             down * ((S(1) - along) * static_cast<S>(widened(lower[left * map.column_stride])) +
                     along * static_cast<S>(widened(lower[right * map.column_stride])));
    }
  }
  output[index] = narrowed<Output>(sum / static_cast<S>(rows.samples * columns.samples));
}

constexpr int kChannels = 32;  // of a block, which has a thread for each and each of
constexpr int kCells = 8;      // so many cells at a time

// A block owns its channels of one image's map, and goes through the boxes in order. Its threads share a box's cells:
// no two of them add to the same number, and the barrier keeps a box's additions before those of the next.
template <typename T, typename S>
__global__ void spread(const DeviceCrops crops, const T* gradient) {
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * kChannels + threadIdx.x;
  const std::int64_t image = blockIdx.y;
  const std::int64_t level = blockIdx.z;
  const DeviceMap& map = crops.maps[level];
  S* const values = static_cast<S*>(map.values) + image * map.image_stride + channel * map.channel_stride;
  const std::int64_t bins = crops.size;
  for (std::int64_t k = 0; k < crops.count; ++k) {
    if (crops.images[k] != image || (crops.levels != nullptr && crops.levels[k] != level)) continue;
    const S* box = static_cast<const S*>(crops.boxes) + 4 * k;
    const Axis<S> rows = rows_of(crops, map, box);
    const Axis<S> columns = columns_of(crops, map, box);
    const std::int64_t top = rows.first_cell();
    const std::int64_t left = columns.first_cell();
    const std::int64_t width = columns.last_cell(bins) - left + 1;
    const std::int64_t cells = (rows.last_cell(bins) - top + 1) * width;
    const T* of_box =
        gradient + k * crops.channels * bins * bins + (crops.channels_last ? channel : channel * bins * bins);
    const std::int64_t bin_stride = crops.channels_last ? crops.channels : 1;
    for (std::int64_t cell = threadIdx.y; cell < cells && channel < crops.channels; cell += kCells) {
      const std::int64_t y = top + cell / width;
      const std::int64_t x = left + cell % width;
      S sum = 0;
      for (std::int64_t row = 0; row < bins; ++row) {
        const S vertical = rows.weight(row, y);
        if (vertical == S(0)) continue;
        for (std::int64_t column = 0; column < bins; ++column) {
          const S horizontal = columns.weight(column, x);
          if (horizontal == S(0)) continue;
          sum += vertical * horizontal * static_cast<S>(widened(of_box[(row * bins + column) * bin_stride]));
        }
      }
      values[y * map.row_stride + x * map.column_stride] += sum;
    }
    __syncthreads();
  }
}

// Word w of row k has a bit for each of the boxes 64 w to 64 w + 63 that box k would drop: later ones of its group.
__global__ void find_overlaps(const float* boxes, const std::int64_t* groups, std::int64_t count, float threshold,
                              std::uint64_t* overlaps) {
  const std::int64_t words = (count + kWordBits - 1) / kWordBits;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= count * words) return;
  const std::int64_t k = index / words;
  const std::int64_t first = index % words * kWordBits;
  const float* box = boxes + 4 * k;
  // Products are kept apart from sums, which would make one fused operation of both: the bits of the host.
  const float area = __fmul_rn(box[2] - box[0], box[3] - box[1]);
  std::uint64_t bits = 0;
  for (std::int64_t j = first > k ? first : k + 1; j < count && j < first + kWordBits; ++j) {
    if (groups[j] != groups[k]) continue;
    const float* other = boxes + 4 * j;
    const float width = fmaxf(fminf(box[2], other[2]) - fmaxf(box[0], other[0]), 0.0F);
    const float height = fmaxf(fminf(box[3], other[3]) - fmaxf(box[1], other[1]), 0.0F);
    const float shared = __fmul_rn(width, height);
    const float other_area = __fmul_rn(other[2] - other[0], other[3] - other[1]);
    if (shared / (area + other_area - shared) > threshold) bits |= std::uint64_t{1} << (j - first);
  }
  overlaps[index] = bits;
}

// One block: box by box, what a kept one drops. `dropped` is in shared memory.
__global__ void keep_boxes(const std::uint64_t* overlaps, std::int64_t count, bool* kept) {
  extern __shared__ std::uint64_t dropped[];
  const std::int64_t words = (count + kWordBits - 1) / kWordBits;
  for (std::int64_t word = threadIdx.x; word < words; word += kThreads) dropped[word] = 0;
  __syncthreads();
  for (std::int64_t k = 0; k < count; ++k) {
    const bool is_kept = (dropped[k / kWordBits] >> (k % kWordBits) & 1) == 0;
    __syncthreads();  // all have read before one writes
    if (threadIdx.x == 0) kept[k] = is_kept;
    if (!is_kept) continue;
    for (std::int64_t word = k / kWordBits + threadIdx.x; word < words; word += kThreads) {
      dropped[word] |= overlaps[k * words + word];
    }
    __syncthreads();
  }
}

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

template <typename T, typename S, typename Output>
void launch_crop(const DeviceCrops& crops, void* output, cudaStream_t stream) {
  const std::int64_t elements = crops.count * crops.channels * crops.size * crops.size;
  if (elements == 0) return;
  crop<T, S, Output><<<blocks_for(elements), kThreads, 0, stream>>>(crops, static_cast<Output*>(output));
}

template <typename T, typename S>
void launch_spread(const DeviceCrops& crops, const void* gradient, cudaStream_t stream) {
  if (crops.count == 0) return;
  const dim3 blocks(static_cast<unsigned>((crops.channels + kChannels - 1) / kChannels),
                    static_cast<unsigned>(crops.batch), static_cast<unsigned>(crops.map_count));
  spread<T, S><<<blocks, dim3(kChannels, kCells), 0, stream>>>(crops, static_cast<const T*>(gradient));
}

}  // namespace

void launch_roi_align(const DeviceCrops& crops, MapType type, void* output, cudaStream_t stream) {
  switch (type) {
    case MapType::float32:
      return launch_crop<float, float, float>(crops, output, stream);
    case MapType::float64:
      return launch_crop<double, double, double>(crops, output, stream);
    case MapType::bfloat16:
      return launch_crop<__nv_bfloat16, float, __nv_bfloat16>(crops, output, stream);
    case MapType::float16:
      return launch_crop<__half, float, __half>(crops, output, stream);
    case MapType::uint8:
      return launch_crop<std::uint8_t, float, float>(crops, output, stream);
  }
}

void launch_roi_align_backward(const DeviceCrops& crops, MapType type, const void* gradient, cudaStream_t stream) {
  switch (type) {
    case MapType::float32:
      return launch_spread<float, float>(crops, gradient, stream);
    case MapType::float64:
      return launch_spread<double, double>(crops, gradient, stream);
    case MapType::bfloat16:
      return launch_spread<__nv_bfloat16, float>(crops, gradient, stream);
    case MapType::float16:
      return launch_spread<__half, float>(crops, gradient, stream);
    case MapType::uint8:
      return;  // masks have no gradient
  }
}

std::int64_t nms_words(std::int64_t count) {
  return (count + kWordBits - 1) / kWordBits;
}

void launch_nms(const float* boxes, const std::int64_t* groups, std::int64_t count, float threshold,
                std::uint64_t* overlaps, bool* kept, cudaStream_t stream) {
  if (count == 0) return;
  const std::int64_t words = nms_words(count);
  find_overlaps<<<blocks_for(count * words), kThreads, 0, stream>>>(boxes, groups, count, threshold, overlaps);
  const auto bytes = static_cast<std::size_t>(words) * sizeof(std::uint64_t);
  keep_boxes<<<1, kThreads, bytes, stream>>>(overlaps, count, kept);
}

}  // namespace libtrain::models::detail
