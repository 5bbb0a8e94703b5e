// Compilers do not find the shuffles of a transposed loop over bytes, so they are spelt out, in GCC's and Clang's
// portable vectors.

#include <libtrain/data/image/transpose.hpp>

#include <algorithm>
#include <cstring>

namespace libtrain::data::detail {

namespace {

typedef std::uint8_t Bytes __attribute__((vector_size(16)));
static_assert(sizeof(Bytes) == kTransposeTile && kLanes % kTransposeTile == 0);

struct Tile {
  Bytes rows[kTransposeTile];
};

inline Bytes load(const std::uint8_t* from, std::size_t count) {
  Bytes result{};
  if (count >= kTransposeTile) {
    std::memcpy(&result, from, kTransposeTile);
  } else {
    std::memcpy(&result, from, count);
  }
  return result;
}

inline void store(const Bytes& bytes, std::uint8_t* to, std::size_t count) {
  if (count >= kTransposeTile) {
    std::memcpy(to, &bytes, kTransposeTile);
  } else {
    std::memcpy(to, &bytes, count);
  }
}

// Rows i and i + 8 become rows 2i and 2i + 1, byte by byte in turn. An element's place, as the 8 bits of its row and
// column, rotates by one bit: after four times the row's bits are where the column's were.
inline void interleave(const Tile& from, Tile& to) {
  for (std::size_t i = 0; i < kTransposeTile / 2; ++i) {
    const Bytes upper = from.rows[i];
    const Bytes lower = from.rows[i + kTransposeTile / 2];
    to.rows[2 * i] = __builtin_shufflevector(upper, lower, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    to.rows[2 * i + 1] =
        __builtin_shufflevector(upper, lower, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
}

inline void transpose(Tile& tile) {
  Tile other;
  interleave(tile, other);
  interleave(other, tile);
  interleave(tile, other);
  interleave(other, tile);
}

}  // namespace

void rows_to_columns(const std::array<const std::uint8_t*, kLanes>& rows, std::size_t count, std::uint8_t* columns) {
  Tile tile;
  for (std::size_t j = 0; j < count; j += kTransposeTile) {
    for (std::size_t lane = 0; lane < kLanes; lane += kTransposeTile) {
      for (std::size_t r = 0; r < kTransposeTile; ++r) tile.rows[r] = load(rows[lane + r] + j, count - j);
      transpose(tile);
      std::uint8_t* to = columns + j * kLanes + lane;
      for (std::size_t x = 0; x < kTransposeTile; ++x) store(tile.rows[x], to + x * kLanes, kTransposeTile);
    }
  }
}

void columns_to_rows(const std::uint8_t* columns, std::size_t column_stride, std::size_t count, std::uint8_t* rows,
                     std::size_t row_stride) {
  Tile tile;
  for (std::size_t j = 0; j < count; j += kTransposeTile) {
    const std::size_t width = std::min(kTransposeTile, count - j);
    for (std::size_t lane = 0; lane < kLanes; lane += kTransposeTile) {
      for (std::size_t x = 0; x < kTransposeTile; ++x) {
        tile.rows[x] = x < width ? load(columns + (j + x) * column_stride + lane, kTransposeTile) : Bytes{};
      }
      transpose(tile);
      for (std::size_t r = 0; r < kTransposeTile; ++r) store(tile.rows[r], rows + (lane + r) * row_stride + j, width);
    }
  }
}

}  // namespace libtrain::data::detail
