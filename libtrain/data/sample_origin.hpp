#pragma once

#include <cstdint>
#include <string>

namespace libtrain::data {

/// The place of a sample in its storage, for messages and for the list of bad samples.
struct SampleOrigin {
  std::string path = {};     ///< of its file, as in messages: without secrets
  std::uint64_t offset = 0;  ///< in bytes in that file; 0 if the sample is the whole file
  std::uint64_t bytes = 0;   ///< length in that file, of a Parquet row that of the file; 0 if it is unknown
};

}  // namespace libtrain::data
