#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace libtrain::data {

/// Returns the indices of the samples that a rank will read, in their order.
using ReadingIndices = std::function<std::vector<std::uint64_t>()>;

/// Fetches the samples of a known order before they are read, for example to a cache on the local disk. Stops when it
/// is destroyed. Errors are not reported: the reader of the sample gets them.
class ReadAhead {
 public:
  virtual ~ReadAhead() = default;

  /// Reports that the first `position` samples of the order have been read. Any thread may call it.
  virtual void advance(std::uint64_t position) = 0;
};

}  // namespace libtrain::data
