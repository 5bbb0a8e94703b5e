#pragma once

#include <cstddef>

namespace libtrain::data {

/// How much memory the calling thread has from operator new, while one of these lives; linking counted_allocation.cpp
/// replaces that operator in the whole program. One at a time on a thread. Memory from malloc(3) itself, such as zlib's
/// 40 KiB, does not count.
class AllocationPeak {
 public:
  AllocationPeak();
  ~AllocationPeak();
  AllocationPeak(const AllocationPeak&) = delete;  // counts for the scope that it stands in
  AllocationPeak& operator=(const AllocationPeak&) = delete;

  /// The most bytes that were in use at one time, beyond those in use at the beginning.
  std::size_t bytes() const;
};

}  // namespace libtrain::data
