#pragma once

#include <cstdint>
#include <limits>

namespace libtrain::data {

/// The next use, as a position in the order of reading, of what is not known to be used again.
inline constexpr std::uint64_t kNeverUsed = std::numeric_limits<std::uint64_t>::max();

}  // namespace libtrain::data
