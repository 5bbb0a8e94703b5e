#pragma once

#include <cstddef>
#include <string>

namespace libtrain::detail {

/// A fault of a file's content. Thrown by functions that do not know the file, and turned into an EnvironmentError by
/// functions that do.
struct FileFault {
  std::string sentence = {};  ///< completes "File 'x': ...", without a full stop
  std::string advice = "Copy or write the file again.";
};

// More than real models have; memory and time for a file of any content are bounded by them.
inline constexpr std::size_t kMaxTensors = 1'000'000;
inline constexpr std::size_t kMaxNameBytes = 4096;
inline constexpr std::size_t kMaxDimensions = 16;

}  // namespace libtrain::detail
