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

/// Also for equal pointers, and for null ones where there is nothing to copy, which memcpy does not take.
inline void copy_bytes(void* target, const void* source, std::size_t bytes) {
  if (bytes > 0 && target != source) std::memcpy(target, source, bytes);
}

/// Calls body(offset, length) over [0, total) in pieces of at most `step`.
template <typename Body>
void for_each_chunk(std::size_t total, std::size_t step, const Body& body) {
  for (std::size_t offset = 0; offset < total; offset += step) body(offset, std::min(step, total - offset));
}

}  // namespace libtrain::detail
