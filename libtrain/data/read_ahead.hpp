#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace libtrain::data {

/// Tells the samples that a rank will read, in their order.
using ReadingIndices = std::function<std::vector<std::uint64_t>()>;

/// Fetches the samples of a known order before they are asked for, such as to a cache on the local disk. Stops when it
/// is destroyed. Errors are left to the reader of the sample.
class ReadAhead {
 public:
  virtual ~ReadAhead() = default;

  /// The first `position` samples of the order have been read. Any thread may say so.
  virtual void advance(std::uint64_t position) = 0;
};

}  // namespace libtrain::data
