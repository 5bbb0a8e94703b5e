#pragma once

#include <algorithm>
#include <cstddef>

namespace libtrain::detail {

/// A run of elements.
struct Slice {
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// The part of `count` elements of `size` bytes that `rank` processes: about equal parts, cut at whole cache lines from
/// the first element, so that no two ranks write the same line of a buffer that begins at a cache line.
inline Slice slice_of(std::size_t count, std::size_t size, int rank, int world_size) {
  constexpr std::size_t kCacheLineBytes = 64;
  const auto per_line = kCacheLineBytes / size;
  const auto lines = (count + per_line - 1) / per_line;
  const auto cut = [&](int part) {
    return std::min(count, lines * static_cast<std::size_t>(part) / static_cast<std::size_t>(world_size) * per_line);
  };
  return {.begin = cut(rank), .count = cut(rank + 1) - cut(rank)};
}

}  // namespace libtrain::detail
