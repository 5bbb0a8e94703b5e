// Crops are products of sparse matrices: rows' weights times map times columns' weights. A bin of rows is added up
// first, over all columns of the box, and its bins of columns then: about half the work of visiting each sample, and
// inner loops over consecutive memory, which are channels (NHWC) or columns (NCHW).
//
// Forward, threads share the boxes; backward, the channels, so that each cell's gradient is added up in the order of
// the boxes by one thread, whatever the number of threads.

#include <libtrain/models/mask_rcnn/detail/roi_align.hpp>

#include <cstring>
#include <type_traits>
#include <vector>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <libtrain/base/detail/vector_clones.hpp>
#include <libtrain/models/mask_rcnn/detail/axis_bins.hpp>

namespace libtrain::models::detail {

namespace {

template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename S, typename T>
LIBTRAIN_INLINED void add_scaled(S* sums, const T* values, S weight, std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k) sums[k] += weight * static_cast<S>(values[k]);
}

LIBTRAIN_VECTOR_CLONES void add_row(float* sums, const float* values, float weight, std::int64_t count) {
  add_scaled(sums, values, weight, count);
}
LIBTRAIN_VECTOR_CLONES void add_row(double* sums, const double* values, double weight, std::int64_t count) {
  add_scaled(sums, values, weight, count);
}
LIBTRAIN_VECTOR_CLONES void add_row(float* sums, const c10::BFloat16* values, float weight, std::int64_t count) {
  add_scaled(sums, values, weight, count);
}
LIBTRAIN_VECTOR_CLONES void add_row(float* sums, const std::uint8_t* values, float weight, std::int64_t count) {
  add_scaled(sums, values, weight, count);
}

template <typename S>
struct Crop {
  AxisBins<S> rows = {};
  AxisBins<S> columns = {};
};

// One image's map or gradient: a plane of `channels` consecutive numbers a cell, or one plane of cells per channel.
struct Layout {
  std::int64_t channels;
  std::int64_t height;
  std::int64_t width;
  bool channels_last;
};

Layout layout_of(const at::Tensor& map) {
  // A map of one channel or one cell is contiguous in both formats.
  const bool last = map.is_contiguous(at::MemoryFormat::ChannelsLast) && !map.is_contiguous();
  return {.channels = map.size(1), .height = map.size(2), .width = map.size(3), .channels_last = last};
}

// All that a box needs besides its map.
template <typename S>
struct Boxes {
  const S* boxes;
  const std::int64_t* images;
  const std::int64_t* levels;
  at::ArrayRef<double> scales;
  std::int64_t output_size;
  std::int64_t sampling_ratio;

  void place(std::int64_t k, const Layout& layout, Crop<S>& crop) const {
    const S* box = boxes + 4 * k;
    const auto scale = static_cast<S>(scales[static_cast<std::size_t>(levels[k])]);
    crop.rows.place(box[1] * scale, box[3] * scale, output_size, sampling_ratio, layout.height);
    crop.columns.place(box[0] * scale, box[2] * scale, output_size, sampling_ratio, layout.width);
  }
};

// `map` and `output` begin at the first of `channels` consecutive channels; a cell is `stride` numbers.
template <typename T, typename S>
void crop_channels_last(const T* map, const Layout& layout, const Crop<S>& crop, T* output, std::vector<S>& memory) {
  const auto& [rows, columns] = crop;
  const std::int64_t channels = layout.channels;
  const std::int64_t width = columns.end - columns.begin;
  memory.resize(static_cast<std::size_t>((width + 1) * channels));
  S* const row = memory.data();
  S* const bin = row + width * channels;
  for (const auto& vertical : rows.bins) {
    std::fill(row, bin, S(0));
    for (std::int64_t y = 0; y < vertical.cells; ++y) {
      add_row(row, map + ((vertical.first + y) * layout.width + columns.begin) * channels,
              rows.weights[vertical.weights + static_cast<std::size_t>(y)], width * channels);
    }
    for (const auto& horizontal : columns.bins) {
      std::fill(bin, bin + channels, S(0));
      for (std::int64_t x = 0; x < horizontal.cells; ++x) {
        add_row(bin, row + (horizontal.first + x - columns.begin) * channels,
                columns.weights[horizontal.weights + static_cast<std::size_t>(x)], channels);
      }
      for (std::int64_t c = 0; c < channels; ++c) *output++ = static_cast<T>(bin[c]);
    }
  }
}

template <typename T, typename S, typename Output>
void crop_plane(const T* plane, std::int64_t plane_width, const Crop<S>& crop, Output* output, std::vector<S>& memory) {
  const auto& [rows, columns] = crop;
  const std::int64_t width = columns.end - columns.begin;
  memory.resize(static_cast<std::size_t>(width));
  for (const auto& vertical : rows.bins) {
    std::fill(memory.begin(), memory.end(), S(0));
    for (std::int64_t y = 0; y < vertical.cells; ++y) {
      add_row(memory.data(), plane + (vertical.first + y) * plane_width + columns.begin,
              rows.weights[vertical.weights + static_cast<std::size_t>(y)], width);
    }
    for (const auto& horizontal : columns.bins) {
      const S* row = memory.data() + (horizontal.first - columns.begin);
      S sum = 0;
      for (std::int64_t x = 0; x < horizontal.cells; ++x) {
        sum += columns.weights[horizontal.weights + static_cast<std::size_t>(x)] * row[x];
      }
      *output++ = static_cast<Output>(sum);
    }
  }
}

// The transposed products: a bin's gradient goes to the columns of one row, and that row to the rows of the map.
template <typename T, typename S>
void spread_channels_last(const T* gradient, const Layout& layout, const Crop<S>& crop, std::int64_t first_channel,
                          std::int64_t channels, S* map, std::vector<S>& memory) {
  const auto& [rows, columns] = crop;
  const std::int64_t width = columns.end - columns.begin;
  memory.resize(static_cast<std::size_t>(width * channels));
  for (const auto& vertical : rows.bins) {
    std::fill(memory.begin(), memory.end(), S(0));
    for (const auto& horizontal : columns.bins) {
      for (std::int64_t x = 0; x < horizontal.cells; ++x) {
        add_row(memory.data() + (horizontal.first + x - columns.begin) * channels, gradient + first_channel,
                columns.weights[horizontal.weights + static_cast<std::size_t>(x)], channels);
      }
      gradient += layout.channels;
    }
    for (std::int64_t y = 0; y < vertical.cells; ++y) {
      S* const row = map + ((vertical.first + y) * layout.width + columns.begin) * layout.channels + first_channel;
      const S weight = rows.weights[vertical.weights + static_cast<std::size_t>(y)];
      if (channels == layout.channels) {
        add_row(row, memory.data(), weight, width * channels);
        continue;
      }
      for (std::int64_t x = 0; x < width; ++x) {
        add_row(row + x * layout.channels, memory.data() + x * channels, weight, channels);
      }
    }
  }
}

template <typename T, typename S>
void spread_plane(const T* gradient, std::int64_t plane_width, const Crop<S>& crop, S* plane, std::vector<S>& memory) {
  const auto& [rows, columns] = crop;
  const std::int64_t width = columns.end - columns.begin;
  memory.resize(static_cast<std::size_t>(width));
  for (const auto& vertical : rows.bins) {
    std::fill(memory.begin(), memory.end(), S(0));
    for (const auto& horizontal : columns.bins) {
      const auto value = static_cast<S>(*gradient++);
      S* const row = memory.data() + (horizontal.first - columns.begin);
      for (std::int64_t x = 0; x < horizontal.cells; ++x) {
        row[x] += value * columns.weights[horizontal.weights + static_cast<std::size_t>(x)];
      }
    }
    for (std::int64_t y = 0; y < vertical.cells; ++y) {
      add_row(plane + (vertical.first + y) * plane_width + columns.begin, memory.data(),
              rows.weights[vertical.weights + static_cast<std::size_t>(y)], width);
    }
  }
}

// Maps in one of the two formats, all in the same.
std::vector<at::Tensor> in_one_format(at::TensorList maps) {
  const auto format =
      layout_of(maps.front()).channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  std::vector<at::Tensor> result;
  for (const auto& map : maps) result.push_back(map.contiguous(format));
  return result;
}

template <typename S>
constexpr at::ScalarType type_of() {
  return std::is_same_v<S, double> ? at::kDouble : at::kFloat;
}

template <typename T>
at::Tensor crop_all(const std::vector<at::Tensor>& maps, const Boxes<Sum<T>>& boxes, std::int64_t count) {
  using S = Sum<T>;
  const Layout first = layout_of(maps.front());
  const auto size = boxes.output_size;
  at::Tensor output =
      at::empty({count, first.channels, size, size},
                maps.front().options().memory_format(first.channels_last ? at::MemoryFormat::ChannelsLast
                                                                         : at::MemoryFormat::Contiguous));
  T* const crops = output.mutable_data_ptr<T>();
  at::parallel_for(0, count, 1, [&](std::int64_t begin, std::int64_t end) {
    Crop<S> crop;
    std::vector<S> memory;
    for (std::int64_t k = begin; k < end; ++k) {
      const at::Tensor& map = maps[static_cast<std::size_t>(boxes.levels[k])];
      Layout layout = layout_of(map);
      layout.channels_last = first.channels_last;
      boxes.place(k, layout, crop);
      const std::int64_t plane = layout.height * layout.width;
      const T* const image = map.const_data_ptr<T>() + boxes.images[k] * layout.channels * plane;
      T* const result = crops + k * layout.channels * size * size;
      if (layout.channels_last) {
        crop_channels_last(image, layout, crop, result, memory);
        continue;
      }
      for (std::int64_t c = 0; c < layout.channels; ++c) {
        crop_plane(image + c * plane, layout.width, crop, result + c * size * size, memory);
      }
    }
  });
  return output;
}

template <typename T>
std::vector<at::Tensor> spread_all(const at::Tensor& gradient, const std::vector<at::Tensor>& maps,
                                   const Boxes<Sum<T>>& boxes, std::int64_t count) {
  using S = Sum<T>;
  const bool channels_last = layout_of(maps.front()).channels_last;
  const auto size = boxes.output_size;
  std::vector<at::Tensor> sums;
  std::vector<Layout> layouts;
  for (const auto& map : maps) {
    sums.push_back(at::zeros_like(map, map.options().dtype(type_of<S>()), at::MemoryFormat::Preserve));
    layouts.push_back(layout_of(map));
    layouts.back().channels_last = channels_last;
  }
  const T* const crops = gradient.const_data_ptr<T>();
  const std::int64_t channels = layouts.front().channels;
  constexpr std::int64_t kLine = 16;  // channels of a cache line: threads write apart
  at::parallel_for(0, (channels + kLine - 1) / kLine, 1, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t from = begin * kLine;
    const std::int64_t to = std::min(end * kLine, channels);
    Crop<S> crop;
    std::vector<S> memory;
    for (std::int64_t k = 0; k < count; ++k) {
      const auto level = static_cast<std::size_t>(boxes.levels[k]);
      const Layout& layout = layouts[level];
      boxes.place(k, layout, crop);
      const std::int64_t plane = layout.height * layout.width;
      S* const image = sums[level].mutable_data_ptr<S>() + boxes.images[k] * channels * plane;
      const T* const crop_gradient = crops + k * channels * size * size;
      if (channels_last) {
        spread_channels_last(crop_gradient, layout, crop, from, to - from, image, memory);
        continue;
      }
      for (std::int64_t c = from; c < to; ++c) {
        spread_plane(crop_gradient + c * size * size, layout.width, crop, image + c * plane, memory);
      }
    }
  });
  for (auto& sum : sums) sum = sum.to(maps.front().scalar_type());
  return sums;
}

void check_range(const at::Tensor& numbers, std::int64_t limit, const char* what) {
  const auto* values = numbers.const_data_ptr<std::int64_t>();
  for (std::int64_t k = 0; k < numbers.size(0); ++k) {
    TORCH_CHECK_INDEX(values[k] >= 0 && values[k] < limit, what, " ", values[k], " of box ", k,
                      " is out of range: there are ", limit, ".");
  }
}

template <typename Function>
auto dispatch(at::ScalarType type, const Function& function) {
  switch (type) {
    case at::kFloat:
      return function(float());
    case at::kDouble:
      return function(double());
    case at::kBFloat16:
      return function(c10::BFloat16());
    default:
      TORCH_CHECK_TYPE(false, "roi_align has no kernel for maps of ", type, ".");
  }
}

}  // namespace

void check_roi_align(at::TensorList maps, const at::Tensor& boxes, const at::Tensor& images, const at::Tensor& levels,
                     at::ArrayRef<double> scales, std::int64_t output_size) {
  TORCH_CHECK(!maps.empty() && maps.size() == scales.size(), "roi_align needs a scale for each map, but got ",
              maps.size(), " maps and ", scales.size(), " scales.");
  for (const auto& map : maps) {
    TORCH_CHECK(map.dim() == 4 && map.size(0) == maps[0].size(0) && map.size(1) == maps[0].size(1) && map.size(2) > 0 &&
                    map.size(3) > 0 && map.scalar_type() == maps[0].scalar_type(),
                "roi_align needs maps [B, C, H, W] of one type and equal B and C; one of them is ", map.sizes(), ".");
  }
  const std::int64_t count = boxes.size(0);
  TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 4, "roi_align needs boxes [K, 4], but got ", boxes.sizes(), ".");
  TORCH_CHECK(images.dim() == 1 && images.size(0) == count && images.scalar_type() == at::kLong && levels.dim() == 1 &&
                  levels.size(0) == count && levels.scalar_type() == at::kLong,
              "roi_align needs the image and the map of each box, int64 [K].");
  TORCH_CHECK(output_size > 0, "roi_align needs a positive output size, but got ", output_size, ".");
}

void check_mask_targets(const at::Tensor& masks, const at::Tensor& boxes, const at::Tensor& matches) {
  TORCH_CHECK(masks.dim() == 3 && masks.scalar_type() == at::kByte, "mask_targets needs masks uint8 [N, H, W].");
  TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 4 && matches.dim() == 1 && matches.size(0) == boxes.size(0) &&
                  matches.scalar_type() == at::kLong,
              "mask_targets needs boxes [K, 4] and matches int64 [K].");
}

namespace {

// Checks the arguments, and calls function(T(), boxes, their number) for maps of the type T.
template <typename Function>
auto with_boxes(at::TensorList maps, const at::Tensor& boxes, const at::Tensor& images, const at::Tensor& levels,
                at::ArrayRef<double> scales, std::int64_t output_size, std::int64_t sampling_ratio,
                const Function& function) {
  check_roi_align(maps, boxes, images, levels, scales, output_size);
  const at::Tensor image_numbers = images.contiguous();
  const at::Tensor level_numbers = levels.contiguous();
  check_range(image_numbers, maps[0].size(0), "image");
  check_range(level_numbers, static_cast<std::int64_t>(maps.size()), "map");
  return dispatch(maps[0].scalar_type(), [&](auto value) {
    using S = Sum<decltype(value)>;
    const at::Tensor corners = boxes.to(type_of<S>()).contiguous();
    return function(value,
                    Boxes<S>{.boxes = corners.const_data_ptr<S>(),
                             .images = image_numbers.const_data_ptr<std::int64_t>(),
                             .levels = level_numbers.const_data_ptr<std::int64_t>(),
                             .scales = scales,
                             .output_size = output_size,
                             .sampling_ratio = sampling_ratio},
                    corners.size(0));
  });
}

}  // namespace

at::Tensor roi_align_cpu(at::TensorList maps, const at::Tensor& boxes, const at::Tensor& images,
                         const at::Tensor& levels, at::ArrayRef<double> scales, std::int64_t output_size,
                         std::int64_t sampling_ratio) {
  return with_boxes(maps, boxes, images, levels, scales, output_size, sampling_ratio,
                    [&](auto value, const auto& of_maps, std::int64_t count) {
                      return crop_all<decltype(value)>(in_one_format(maps), of_maps, count);
                    });
}

std::vector<at::Tensor> roi_align_backward_cpu(const at::Tensor& gradient, at::TensorList maps, const at::Tensor& boxes,
                                               const at::Tensor& images, const at::Tensor& levels,
                                               at::ArrayRef<double> scales, std::int64_t output_size,
                                               std::int64_t sampling_ratio) {
  return with_boxes(maps, boxes, images, levels, scales, output_size, sampling_ratio,
                    [&](auto value, const auto& of_maps, std::int64_t count) {
                      const std::int64_t sizes[] = {count, maps[0].size(1), output_size, output_size};
                      TORCH_CHECK(gradient.sizes().equals(sizes) && gradient.scalar_type() == maps[0].scalar_type(),
                                  "roi_align_backward needs a gradient ", at::IntArrayRef(sizes),
                                  " of the maps' type, but got ", gradient.sizes(), " of ", gradient.scalar_type(),
                                  ".");
                      const auto in_format = in_one_format(maps);
                      const auto format = layout_of(in_format.front()).channels_last ? at::MemoryFormat::ChannelsLast
                                                                                     : at::MemoryFormat::Contiguous;
                      return spread_all<decltype(value)>(gradient.contiguous(format), in_format, of_maps, count);
                    });
}

at::Tensor mask_targets_cpu(const at::Tensor& masks, const at::Tensor& boxes, const at::Tensor& matches,
                            std::int64_t output_size) {
  check_mask_targets(masks, boxes, matches);
  const at::Tensor pixels = masks.contiguous();
  const at::Tensor corners = boxes.to(at::kFloat).contiguous();
  const at::Tensor numbers = matches.contiguous();
  check_range(numbers, masks.size(0), "mask");
  at::Tensor output = at::empty({boxes.size(0), output_size, output_size}, at::kFloat);
  const std::int64_t height = masks.size(1);
  const std::int64_t width = masks.size(2);
  at::parallel_for(0, boxes.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    Crop<float> crop;
    std::vector<float> memory;
    for (std::int64_t k = begin; k < end; ++k) {
      const float* box = corners.const_data_ptr<float>() + 4 * k;
      crop.rows.place(box[1], box[3], output_size, 0, height);
      crop.columns.place(box[0], box[2], output_size, 0, width);
      crop_plane(pixels.const_data_ptr<std::uint8_t>() + numbers.const_data_ptr<std::int64_t>()[k] * height * width,
                 width, crop, output.mutable_data_ptr<float>() + k * output_size * output_size, memory);
    }
  });
  return output;
}

}  // namespace libtrain::models::detail
