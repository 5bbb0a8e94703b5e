#include <libtrain/models/mask_rcnn/detail/cuda/kernels.hpp>

#include <algorithm>

#include <libtrain/models/detail/cuda/conversions.cuh>

namespace libtrain::models::detail {

namespace {

constexpr int kThreads = 256;
constexpr int kWordBits = 64;

// One axis of a box, as AxisBins on the host.
template <typename S>
struct Axis {
  S start;
  S bin;
  int samples;
  int length;

  __device__ Axis(S from, S to, int bins, int sampling_ratio, int cells)
      : start(from), bin((to - from > S(1) ? to - from : S(1)) / static_cast<S>(bins)), length(cells) {
    // None in an infinite box.
    samples = sampling_ratio > 0 ? sampling_ratio : bin <= S(1e9) ? static_cast<int>(ceil(bin)) : 0;
  }

  __device__ S at(int number, int sample) const {
    return start + static_cast<S>(number) * bin + (static_cast<S>(sample) + S(0.5)) * bin / static_cast<S>(samples);
  }

  // Also if it is NaN.
  __device__ bool is_outside(S place) const { return !(place >= S(-1) && place <= static_cast<S>(length)); }

  // Within the cells, of which the last counts up to its outer border.
  __device__ S clamped(S place) const {
    const S last = static_cast<S>(length - 1);
    return place < S(0) ? S(0) : place > last ? last : place;
  }

  // How much of bin `number` is from `cell`.
  __device__ S weight(int number, int cell) const {
    S sum = 0;
    for (int sample = 0; sample < samples; ++sample) {
      const S place = at(number, sample);
      if (is_outside(place)) continue;
      const S distance = clamped(place) - static_cast<S>(cell);
      const S share = S(1) - (distance < S(0) ? -distance : distance);
      if (share > S(0)) sum += share;
    }
    return sum / static_cast<S>(samples > 0 ? samples : 1);
  }

  // The cells that the bins depend on.
  __device__ int first_cell() const { return static_cast<int>(clamped(at(0, 0))); }
  __device__ int last_cell(int bins) const {
    const int cell = static_cast<int>(clamped(at(bins - 1, samples - 1))) + 1;
    return cell < length ? cell : length - 1;
  }
};

template <typename S>
__device__ Axis<S> rows_of(const DeviceCrops& crops, const DeviceMap& map, const S* box) {
  const S scale = static_cast<S>(map.scale);
  return {box[1] * scale, box[3] * scale, static_cast<int>(crops.size), static_cast<int>(crops.sampling_ratio),
          static_cast<int>(map.height)};
}

template <typename S>
__device__ Axis<S> columns_of(const DeviceCrops& crops, const DeviceMap& map, const S* box) {
  const S scale = static_cast<S>(map.scale);
  return {box[0] * scale, box[2] * scale, static_cast<int>(crops.size), static_cast<int>(crops.sampling_ratio),
          static_cast<int>(map.width)};
}

// The place of an element of the crops, in the order of their memory.
struct Place {
  unsigned box, channel, row, column;

  __device__ Place(const DeviceCrops& crops, unsigned index) {
    const auto channels = static_cast<unsigned>(crops.channels);
    const auto size = static_cast<unsigned>(crops.size);
    if (crops.channels_last) {
      channel = index % channels;
      index /= channels;
    }
    column = index % size;
    index /= size;
    row = index % size;
    index /= size;
    if (!crops.channels_last) {
      channel = index % channels;
      index /= channels;
    }
    box = index;
  }
};

template <typename T, typename S, typename Output>
__global__ void crop(const DeviceCrops crops, Output* output) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
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
  for (int i = 0; i < rows.samples; ++i) {
    const S y = rows.at(static_cast<int>(place.row), i);
    if (rows.is_outside(y)) continue;
    const S inside_y = rows.clamped(y);
    const int top = static_cast<int>(inside_y);
    const int bottom = top + 1 < rows.length ? top + 1 : top;
    const S down = inside_y - static_cast<S>(top);
    for (int j = 0; j < columns.samples; ++j) {
      const S x = columns.at(static_cast<int>(place.column), j);
      if (columns.is_outside(x)) continue;
      const S inside_x = columns.clamped(x);
      const int left = static_cast<int>(inside_x);
      const int right = left + 1 < columns.length ? left + 1 : left;
      const S along = inside_x - static_cast<S>(left);
      const T* upper = values + top * map.row_stride;
      const T* lower = values + bottom * map.row_stride;
      sum += (S(1) - down) * ((S(1) - along) * static_cast<S>(widened(upper[left * map.column_stride])) +
                              along * static_cast<S>(widened(upper[right * map.column_stride]))) +
             down * ((S(1) - along) * static_cast<S>(widened(lower[left * map.column_stride])) +
                     along * static_cast<S>(widened(lower[right * map.column_stride])));
    }
  }
  const int samples = rows.samples * columns.samples;
  output[index] = narrowed<Output>(sum / static_cast<S>(samples > 0 ? samples : 1));
}

constexpr int kSide = 8;       // cells of a tile in each direction
constexpr int kChannels = 32;  // of a block
constexpr int kSums = kSide * kSide * kChannels / kThreads;
constexpr int kWarp = 32;
constexpr int kLanes = kThreads / (2 * kSide);  // threads that weigh the bins for one row or column of a tile

// Of the boxes from `first` on, as many as there are threads, puts those that touch the tile into `chosen`, in their
// order, and returns how many.
template <typename S>
__device__ int choose_boxes(const DeviceCrops& crops, int level, std::int64_t image, std::int64_t first, int top,
                            int left, std::int64_t* chosen) {
  __shared__ int of_warp[kThreads / kWarp];
  const DeviceMap& map = crops.maps[level];
  const std::int64_t k = first + threadIdx.x;
  bool is_near = false;
  if (k < crops.count && crops.images[k] == image && (crops.levels == nullptr || crops.levels[k] == level)) {
    const S* box = static_cast<const S*>(crops.boxes) + 4 * k;
    const Axis<S> rows = rows_of(crops, map, box);
    const Axis<S> columns = columns_of(crops, map, box);
    const auto bins = static_cast<int>(crops.size);
    is_near = rows.first_cell() < top + kSide && rows.last_cell(bins) >= top && columns.first_cell() < left + kSide &&
              columns.last_cell(bins) >= left;
  }
  const unsigned near_in_warp = __ballot_sync(~0U, is_near);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (lane == 0) of_warp[warp] = __popc(near_in_warp);
  __syncthreads();
  int before = 0;
  int all = 0;
  for (int other = 0; other < kThreads / kWarp; ++other) {
    if (other < warp) before += of_warp[other];
    all += of_warp[other];
  }
  if (is_near) chosen[before + __popc(near_in_warp & ((1U << lane) - 1))] = k;
  __syncthreads();
  return all;
}

// The gradient of one level's map. A block owns a tile of cells, of some channels of one image, and each of its threads
// owns kSums of their sums, to which it adds box by box and bin by bin: the same bits each time, without atomics.
template <typename T, typename S, bool kChannelsLast>
__global__ void gather(const DeviceCrops crops, int level, const T* gradient) {
  // What a box gives to the tile: of each bin to each row and column, and which bins have a weight that is not 0.
  // Twice, so that one box's weights are computed while another's are still read.
  extern __shared__ double memory[];
  S* const weights = reinterpret_cast<S*>(memory);
  __shared__ int first_bin[2][2 * kSide];
  __shared__ int last_bin[2][2 * kSide];
  __shared__ std::int64_t chosen[kThreads];
  const DeviceMap& map = crops.maps[level];
  const int bins = static_cast<int>(crops.size);
  const unsigned tiles_in_row = (static_cast<unsigned>(map.width) + kSide - 1) / kSide;
  const int top = static_cast<int>(blockIdx.x / tiles_in_row) * kSide;
  const int left = static_cast<int>(blockIdx.x % tiles_in_row) * kSide;
  const std::int64_t image = blockIdx.z;
  const int thread = static_cast<int>(threadIdx.x);
  // Neighbouring threads have neighbouring numbers of the map's memory: of channels_last a warp has the channels of one
  // column, and each thread all its rows; otherwise a thread has one cell, and some channels that are kApart apart.
  static_assert(kThreads == kWarp * kSide && kChannels == kWarp && kSums == kSide);
  constexpr int kApart = kThreads / (kSide * kSide);
  const int first_channel =
      static_cast<int>(blockIdx.y) * kChannels + (kChannelsLast ? thread % kWarp : thread / (kSide * kSide));
  const int own_column = kChannelsLast ? thread / kWarp : thread % kSide;
  const int own_row = kChannelsLast ? 0 : thread / kSide % kSide;
  S sums[kSums] = {};
  int buffer = 0;
  for (std::int64_t begin = 0; begin < crops.count; begin += kThreads) {
    const int count = choose_boxes<S>(crops, level, image, begin, top, left, chosen);
    for (int number = 0; number < count; ++number, buffer = 1 - buffer) {
      const std::int64_t k = chosen[number];
      const S* box = static_cast<const S*>(crops.boxes) + 4 * k;
      S* const of_rows = weights + buffer * 2 * kSide * bins;
      {
        const int line = thread / kLanes;  // rows of the tile, then columns
        const bool is_row = line < kSide;
        const Axis<S> axis = is_row ? rows_of(crops, map, box) : columns_of(crops, map, box);
        const int cell = is_row ? top + line : left + line - kSide;
        int from = bins;
        int to = -1;
        for (int start = 0; start < bins; start += kLanes) {
          const int bin = start + thread % kLanes;
          const S weight = bin < bins ? axis.weight(bin, cell) : S(0);
          if (bin < bins) of_rows[line * bins + bin] = weight;
          const unsigned lanes = __ballot_sync(~0U, weight != S(0)) >> (thread % kWarp / kLanes * kLanes);
          const unsigned used = lanes & ((1U << kLanes) - 1);
          if (used == 0) continue;
          if (to < 0) from = start + __ffs(static_cast<int>(used)) - 1;
          to = start + 31 - __clz(static_cast<int>(used));
        }
        if (thread % kLanes == 0) {
          first_bin[buffer][line] = from;
          last_bin[buffer][line] = to;
        }
      }
      __syncthreads();
      if (first_channel >= crops.channels) continue;
      const S* const of_column = of_rows + (kSide + own_column) * bins;
      const int first_across = first_bin[buffer][kSide + own_column];
      const int last_across = last_bin[buffer][kSide + own_column];
      const std::int64_t of_box = k * crops.channels * bins * bins;
      if constexpr (kChannelsLast) {
        int first_down = bins;
        int last_down = -1;
#pragma unroll
        for (int row = 0; row < kSide; ++row) {
          first_down = min(first_down, first_bin[buffer][row]);
          last_down = max(last_down, last_bin[buffer][row]);
        }
        const T* const values = gradient + of_box + first_channel;
        for (int i = first_down; i <= last_down; ++i) {
          S across = 0;
          for (int j = first_across; j <= last_across; ++j) {
            across += of_column[j] * static_cast<S>(widened(values[(i * bins + j) * crops.channels]));
          }
#pragma unroll
          for (int row = 0; row < kSide; ++row) sums[row] += of_rows[row * bins + i] * across;
        }
      } else {
        for (int i = first_bin[buffer][own_row]; i <= last_bin[buffer][own_row]; ++i) {
          for (int j = first_across; j <= last_across; ++j) {
            const S weight = of_rows[own_row * bins + i] * of_column[j];
            const T* const values = gradient + of_box + first_channel * bins * bins + i * bins + j;
#pragma unroll
            for (int sum = 0; sum < kSums; ++sum) {
              if (first_channel + sum * kApart >= crops.channels) continue;
              sums[sum] += weight * static_cast<S>(widened(values[sum * kApart * bins * bins]));
            }
          }
        }
      }
    }
  }
#pragma unroll
  for (int sum = 0; sum < kSums; ++sum) {
    const std::int64_t row = top + (kChannelsLast ? sum : own_row);
    const std::int64_t column = left + own_column;
    const std::int64_t channel = first_channel + (kChannelsLast ? 0 : sum * kApart);
    if (row >= map.height || column >= map.width || channel >= crops.channels) continue;
    static_cast<T*>(map.values)[image * map.image_stride + channel * map.channel_stride + row * map.row_stride +
                                column * map.column_stride] = narrowed<T>(sums[sum]);
  }
}

// Word w of row k has a bit for each of the boxes 64 w to 64 w + 63 that box k would drop: later ones of its group. A
// block has 64 rows of one word, and a thread each. Words before a box's own are not written.
__global__ void find_overlaps(const float* boxes, const std::int64_t* groups, std::int64_t count, float threshold,
                              std::uint64_t* overlaps) {
  __shared__ float others[kWordBits][4];
  __shared__ std::int64_t other_groups[kWordBits];
  const std::int64_t word = blockIdx.x;
  if (word < blockIdx.y) return;
  const std::int64_t first = word * kWordBits;
  const int thread = static_cast<int>(threadIdx.x);
  if (first + thread < count) {
    for (int side = 0; side < 4; ++side) others[thread][side] = boxes[4 * (first + thread) + side];
    other_groups[thread] = groups[first + thread];
  }
  __syncthreads();
  const std::int64_t k = static_cast<std::int64_t>(blockIdx.y) * kWordBits + thread;
  if (k >= count) return;
  const float* box = boxes + 4 * k;
  const std::int64_t group = groups[k];
  // Products are kept apart from sums, which would make one fused operation of both: the bits of the host.
  const float area = __fmul_rn(box[2] - box[0], box[3] - box[1]);
  std::uint64_t bits = 0;
  for (int j = word == blockIdx.y ? thread + 1 : 0; j < kWordBits && first + j < count; ++j) {
    if (other_groups[j] != group) continue;
    const float* other = others[j];
    const float width = fmaxf(fminf(box[2], other[2]) - fmaxf(box[0], other[0]), 0.0F);
    const float height = fmaxf(fminf(box[3], other[3]) - fmaxf(box[1], other[1]), 0.0F);
    const float shared = __fmul_rn(width, height);
    const float other_area = __fmul_rn(other[2] - other[0], other[3] - other[1]);
    if (shared / (area + other_area - shared) > threshold) bits |= std::uint64_t{1} << j;
  }
  overlaps[k * ((count + kWordBits - 1) / kWordBits) + word] = bits;
}

constexpr int kKeepThreads = 1024;

// One block goes through the boxes, 64 at a time: one thread decides which of them are kept, then all note what these
// drop. `dropped` is in shared memory.
__global__ void keep_boxes(const std::uint64_t* overlaps, std::int64_t count, bool* kept) {
  extern __shared__ unsigned long long dropped[];
  __shared__ std::uint64_t own[kWordBits];
  __shared__ std::uint64_t decided;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t words = (count + kWordBits - 1) / kWordBits;
  for (std::int64_t word = thread; word < words; word += kKeepThreads) dropped[word] = 0;
  for (std::int64_t word = 0; word < words; ++word) {
    const std::int64_t first = word * kWordBits;
    const int here = static_cast<int>(count - first < kWordBits ? count - first : kWordBits);
    if (thread < here) own[thread] = overlaps[(first + thread) * words + word];
    __syncthreads();
    if (thread == 0) {
      std::uint64_t gone = dropped[word];
      std::uint64_t bits = 0;
      for (int k = 0; k < here; ++k) {
        if ((gone >> k & 1) != 0) continue;
        bits |= std::uint64_t{1} << k;
        gone |= own[k];
      }
      decided = bits;
    }
    __syncthreads();
    const std::uint64_t bits = decided;
    if (thread < here) kept[first + thread] = (bits >> thread & 1) != 0;
    for (int k = thread / kWarp; k < here; k += kKeepThreads / kWarp) {
      if ((bits >> k & 1) == 0) continue;
      const std::uint64_t* const row = overlaps + (first + k) * words;
#pragma unroll 4
      for (std::int64_t later = word + 1 + thread % kWarp; later < words; later += kWarp) {
        if (const std::uint64_t drops = row[later]; drops != 0) atomicOr(&dropped[later], drops);
      }
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
void launch_gather(const DeviceCrops& crops, const void* gradient, cudaStream_t stream) {
  const auto bytes = static_cast<std::size_t>(2 * 2 * kSide * crops.size) * sizeof(S);
  for (int level = 0; level < crops.map_count; ++level) {
    const DeviceMap& map = crops.maps[level];
    const std::int64_t tiles = (map.height + kSide - 1) / kSide * ((map.width + kSide - 1) / kSide);
    const dim3 blocks(static_cast<unsigned>(tiles), static_cast<unsigned>((crops.channels + kChannels - 1) / kChannels),
                      static_cast<unsigned>(crops.batch));
    if (blocks.x * blocks.y * blocks.z == 0) continue;
    const auto* const crop_gradient = static_cast<const T*>(gradient);
    if (crops.channels_last) {
      gather<T, S, true><<<blocks, kThreads, bytes, stream>>>(crops, level, crop_gradient);
    } else {
      gather<T, S, false><<<blocks, kThreads, bytes, stream>>>(crops, level, crop_gradient);
    }
  }
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
      return launch_gather<float, float>(crops, gradient, stream);
    case MapType::float64:
      return launch_gather<double, double>(crops, gradient, stream);
    case MapType::bfloat16:
      return launch_gather<__nv_bfloat16, float>(crops, gradient, stream);
    case MapType::float16:
      return launch_gather<__half, float>(crops, gradient, stream);
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
  const auto words = static_cast<unsigned>(nms_words(count));
  find_overlaps<<<dim3(words, words), kWordBits, 0, stream>>>(boxes, groups, count, threshold, overlaps);
  keep_boxes<<<1, kKeepThreads, words * sizeof(std::uint64_t), stream>>>(overlaps, count, kept);
}

}  // namespace libtrain::models::detail
