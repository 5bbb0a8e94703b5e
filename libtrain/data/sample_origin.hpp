#pragma once

#include <cstdint>
#include <string>

namespace libtrain::data {

/// Where a sample is stored, for messages and for the list of bad samples.
struct SampleOrigin {
  std::string path = {};     ///< of its file, as messages name it: nothing secret
  std::uint64_t offset = 0;  ///< in that file, in bytes; 0 where the sample is all of it
  std::uint64_t bytes = 0;   ///< how long it is there; 0 where that is not known without reading
};

}  // namespace libtrain::data
