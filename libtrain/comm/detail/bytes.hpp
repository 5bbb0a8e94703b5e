#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace libtrain::detail {

inline char* at_offset(void* data, std::size_t bytes) {
  return static_cast<char*>(data) + bytes;
}

inline const char* at_offset(const void* data, std::size_t bytes) {
  return static_cast<const char*>(data) + bytes;
}

/// The part of `rank` in a buffer that has `bytes` bytes for each rank.
inline char* part_of(void* data, int rank, std::size_t bytes) {
  return at_offset(data, static_cast<std::size_t>(rank) * bytes);
}

inline const char* part_of(const void* data, int rank, std::size_t bytes) {
  return at_offset(data, static_cast<std::size_t>(rank) * bytes);
}

/// Unlike memcpy, accepts equal pointers, and null pointers if there is nothing to copy.
inline void copy_bytes(void* target, const void* source, std::size_t bytes) {
  if (bytes > 0 && target != source) std::memcpy(target, source, bytes);
}

/// Calls body(offset, length) over [0, total) in pieces of at most `step`.
template <typename Body>
void for_each_chunk(std::size_t total, std::size_t step, const Body& body) {
  for (std::size_t offset = 0; offset < total; offset += step) body(offset, std::min(step, total - offset));
}

}  // namespace libtrain::detail
