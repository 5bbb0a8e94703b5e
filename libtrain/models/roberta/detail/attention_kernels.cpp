#include <libtrain/models/roberta/detail/attention_kernels.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <libtrain/models/roberta/detail/lanes.hpp>

namespace libtrain::models::detail {

namespace {

constexpr std::int64_t kTileRows = 6;
constexpr std::int64_t kTileLanes = 4;  // 24 sums in registers, of the 32 of AVX-512

std::int64_t in_lanes(std::int64_t count) {
  return (count + kLanes - 1) / kLanes * kLanes;
}

// Element (row, k) is at data[row * row_step + k * step].
struct Strided {
  const float* data;
  std::int64_t row_step;
  std::int64_t step;
};

// Rows of a matrix in memory.
template <typename T>
struct Rows {
  T* data;
  std::int64_t stride;

  LIBTRAIN_INLINED T* operator[](std::int64_t row) const { return data + row * stride; }
};

template <std::int64_t kRows, std::int64_t kColumns>
LIBTRAIN_INLINED void multiply_tile(Strided a, Rows<const float> b, Rows<float> result, std::int64_t depth) {
  Lanes sums[kRows][kColumns] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    Lanes of_b[kColumns];
#pragma GCC unroll 4
    for (std::int64_t column = 0; column < kColumns; ++column) of_b[column] = load(b[k] + column * kLanes);
#pragma GCC unroll 6
    for (std::int64_t row = 0; row < kRows; ++row) {
      const Lanes of_a = lanes_of(a.data[row * a.row_step + k * a.step]);
#pragma GCC unroll 4
      for (std::int64_t column = 0; column < kColumns; ++column) sums[row][column] += of_a * of_b[column];
    }
  }
#pragma GCC unroll 6
  for (std::int64_t row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
    for (std::int64_t column = 0; column < kColumns; ++column) {
      store(result[row] + column * kLanes, sums[row][column]);
    }
  }
}

template <std::int64_t kRows>
LIBTRAIN_INLINED void multiply_rows(Strided a, Rows<const float> b, Rows<float> result, std::int64_t columns,
                                    std::int64_t depth) {
  std::int64_t column = 0;
  for (; column + kTileLanes * kLanes <= columns; column += kTileLanes * kLanes) {
    multiply_tile<kRows, kTileLanes>(a, {b.data + column, b.stride}, {result.data + column, result.stride}, depth);
  }
  for (; column < columns; column += kLanes) {
    multiply_tile<kRows, 1>(a, {b.data + column, b.stride}, {result.data + column, result.stride}, depth);
  }
}

// result = a b, [rows, columns]; columns is a multiple of kLanes.
LIBTRAIN_INLINED void multiply(Strided a, Rows<const float> b, Rows<float> result, std::int64_t rows,
                               std::int64_t columns, std::int64_t depth) {
  std::int64_t row = 0;
  const auto from = [&]() __attribute__((always_inline)) {
    return Strided{a.data + row * a.row_step, a.row_step, a.step};
  };
  for (; row + kTileRows <= rows; row += kTileRows) {
    multiply_rows<kTileRows>(from(), b, {result[row], result.stride}, columns, depth);
  }
  for (; row < rows; ++row) multiply_rows<1>(from(), b, {result[row], result.stride}, columns, depth);
}

// To rows of `width` numbers with zeros up to the next multiple of kLanes.
template <typename T>
LIBTRAIN_INLINED void copy_in(Rows<const T> from, Rows<float> to, std::int64_t rows, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t k = 0;
    for (; k + kLanes <= width; k += kLanes) store(to[row] + k, load(from[row] + k));
    for (; k < to.stride; ++k) to[row][k] = k < width ? static_cast<float>(from[row][k]) : 0;
  }
}

template <typename T>
LIBTRAIN_INLINED void copy_out(Rows<const float> from, Rows<T> to, std::int64_t rows, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t k = 0;
    for (; k + kLanes <= width; k += kLanes) store(to[row] + k, load(from[row] + k));
    for (; k < width; ++k) to[row][k] = static_cast<T>(from[row][k]);
  }
}

// [rows, width] to [width, rows], with zeros up to the stride.
LIBTRAIN_INLINED void transpose(Rows<const float> from, Rows<float> to, std::int64_t rows, std::int64_t width) {
  for (std::int64_t first = 0; first < to.stride; first += kLanes) {
    const auto count = std::min(kLanes, rows - first);
    for (std::int64_t k = 0; k < width; ++k) {
      alignas(64) float column[kLanes] = {};
      for (std::int64_t row = 0; row < count; ++row) column[row] = from[first + row][k];
      store(to[k] + first, load(column));
    }
  }
}

// Parts of the scratch memory.
class Scratch {
 public:
  explicit Scratch(float* memory) : next_(memory) {}

  LIBTRAIN_INLINED Rows<float> take(std::int64_t rows, std::int64_t width) {
    const Rows<float> part{next_, width};
    next_ += rows * width;
    return part;
  }

 private:
  float* next_;
};

LIBTRAIN_INLINED Rows<const float> read(Rows<float> rows) {
  return {rows.data, rows.stride};
}

LIBTRAIN_INLINED Strided by_rows(Rows<float> rows) {
  return {rows.data, rows.stride, 1};
}

LIBTRAIN_INLINED Strided by_columns(Rows<float> rows) {
  return {rows.data, 1, rows.stride};
}

template <typename T>
LIBTRAIN_INLINED float scale_of(const AttentionHead<T>& head) {
  return 1 / std::sqrt(static_cast<float>(head.width));
}

LIBTRAIN_INLINED std::uint32_t number_at(Rows<float> scores, std::int64_t row, std::int64_t column) {
  return static_cast<std::uint32_t>(row * scores.stride + column);
}

// Scores of one query become its probabilities.
LIBTRAIN_INLINED float softmax(float* scores, std::int64_t count, std::int64_t padded, float scale) {
  for (auto k = count; k < padded; ++k) scores[k] = -std::numeric_limits<float>::infinity();
  Lanes largest = load(scores);
  for (std::int64_t k = kLanes; k < padded; k += kLanes) largest = maximum(largest, load(scores + k));
  const float top = maximum(largest);
  Lanes total{};
  for (std::int64_t k = 0; k < padded; k += kLanes) {
    const Lanes power = exponential((load(scores + k) - top) * scale);
    store(scores + k, power);
    total += power;
  }
  const float all = sum(total);
  for (std::int64_t k = 0; k < padded; k += kLanes) store(scores + k, load(scores + k) * (1 / all));
  return top * scale + std::log(all);
}

template <typename T>
LIBTRAIN_INLINED void attend_each(const AttentionHead<T>& head, T* outputs, float* log_sums, float* memory) {
  const auto width = in_lanes(head.width), padded = in_lanes(head.key_count);
  Scratch scratch(memory);
  const auto rows = scratch.take(head.key_count, width);
  const auto keys = scratch.take(head.width, padded);
  const auto scores = scratch.take(kTileRows, padded);
  const auto results = scratch.take(kTileRows, width);
  const auto queries = scratch.take(kTileRows, width);
  copy_in<T>({head.keys, head.stride}, rows, head.key_count, head.width);
  transpose(read(rows), keys, head.key_count, head.width);
  const auto values = rows;
  copy_in<T>({head.values, head.stride}, values, head.key_count, head.width);
  const DropLanes drop(head.dropout);
  for (std::int64_t first = 0; first < head.query_count; first += kTileRows) {
    const auto count = std::min(kTileRows, head.query_count - first);
    copy_in<T>({head.queries + first * head.stride, head.stride}, queries, count, head.width);
    multiply(by_rows(queries), read(keys), scores, count, padded, head.width);
    for (std::int64_t row = 0; row < count; ++row) {
      log_sums[first + row] = softmax(scores[row], head.key_count, padded, scale_of(head));
      if (head.dropout.probability == 0) continue;
      for (std::int64_t k = 0; k < padded; k += kLanes) {
        store(scores[row] + k, load(scores[row] + k) * drop.at(number_at(scores, first + row, k)));
      }
    }
    multiply(by_rows(scores), read(values), results, count, width, head.key_count);
    copy_out<T>(read(results), {outputs + first * head.stride, head.stride}, count, head.width);
  }
}

template <typename T>
LIBTRAIN_INLINED void gradients_each(const AttentionHead<T>& head, const AttentionGradients<T>& gradients,
                                     float* memory) {
  const auto width = in_lanes(head.width), padded = in_lanes(head.key_count);
  const float scale = scale_of(head);
  Scratch scratch(memory);
  const auto queries = scratch.take(head.query_count, width);
  const auto keys = scratch.take(head.key_count, width);
  const auto transposed = scratch.take(head.width, padded);
  const auto of_outputs = scratch.take(head.query_count, width);
  const auto probabilities = scratch.take(head.query_count, padded);
  const auto of_scores = scratch.take(head.query_count, padded);
  const auto results = scratch.take(std::max(head.query_count, head.key_count), width);
  copy_in<T>({head.queries, head.stride}, queries, head.query_count, head.width);
  copy_in<T>({gradients.of_outputs, head.stride}, of_outputs, head.query_count, head.width);
  copy_in<T>({head.values, head.stride}, results, head.key_count, head.width);
  transpose(read(results), transposed, head.key_count, head.width);
  multiply(by_rows(of_outputs), read(transposed), of_scores, head.query_count, padded, head.width);
  copy_in<T>({head.keys, head.stride}, keys, head.key_count, head.width);
  transpose(read(keys), transposed, head.key_count, head.width);
  multiply(by_rows(queries), read(transposed), probabilities, head.query_count, padded, head.width);

  const DropLanes drop(head.dropout);
  const bool drops = head.dropout.probability > 0;
  copy_in<T>({gradients.outputs, head.stride}, results, head.query_count, head.width);
  for (std::int64_t row = 0; row < head.query_count; ++row) {
    Lanes product{};
    for (std::int64_t k = 0; k < width; k += kLanes) product += load(results[row] + k) * load(of_outputs[row] + k);
    const float mean = sum(product);
    float* of_row = probabilities[row];
    for (auto k = head.key_count; k < padded; ++k) of_row[k] = -std::numeric_limits<float>::infinity();
    for (std::int64_t k = 0; k < padded; k += kLanes) {
      const Lanes probability = exponential(load(of_row + k) * scale - gradients.log_sums[row]);
      const Lanes factor = drops ? drop.at(number_at(probabilities, row, k)) : lanes_of(1);
      const Lanes gradient = load(of_scores[row] + k) * factor - mean;
      store(of_scores[row] + k, probability * gradient * scale);
      store(of_row + k, probability * factor);
    }
  }
  multiply(by_columns(probabilities), read(of_outputs), results, head.key_count, width, head.query_count);
  copy_out<T>(read(results), {gradients.to_values, head.stride}, head.key_count, head.width);
  multiply(by_columns(of_scores), read(queries), results, head.key_count, width, head.query_count);
  copy_out<T>(read(results), {gradients.to_keys, head.stride}, head.key_count, head.width);
  multiply(by_rows(of_scores), read(keys), results, head.query_count, width, head.key_count);
  copy_out<T>(read(results), {gradients.to_queries, head.stride}, head.query_count, head.width);
}

}  // namespace

std::int64_t attend_scratch(std::int64_t key_count, std::int64_t width) {
  const auto columns = in_lanes(width), padded = in_lanes(key_count);
  return (key_count + 2 * kTileRows) * columns + (width + kTileRows) * padded;
}

std::int64_t gradients_scratch(std::int64_t query_count, std::int64_t key_count, std::int64_t width) {
  const auto columns = in_lanes(width), padded = in_lanes(key_count);
  const auto rows = 2 * query_count + key_count + std::max(query_count, key_count);
  return rows * columns + (width + 2 * query_count) * padded;
}

LIBTRAIN_VECTOR_CLONES void attend_head(const AttentionHead<float>& head, float* outputs, float* log_sums,
                                        float* scratch) {
  attend_each(head, outputs, log_sums, scratch);
}

LIBTRAIN_VECTOR_CLONES void attend_head(const AttentionHead<c10::BFloat16>& head, c10::BFloat16* outputs,
                                        float* log_sums, float* scratch) {
  attend_each(head, outputs, log_sums, scratch);
}

LIBTRAIN_VECTOR_CLONES void attention_gradients(const AttentionHead<float>& head,
                                                const AttentionGradients<float>& gradients, float* scratch) {
  gradients_each(head, gradients, scratch);
}

LIBTRAIN_VECTOR_CLONES void attention_gradients(const AttentionHead<c10::BFloat16>& head,
                                                const AttentionGradients<c10::BFloat16>& gradients, float* scratch) {
  gradients_each(head, gradients, scratch);
}

}  // namespace libtrain::models::detail
