#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/checkpoint/safetensors.hpp>

namespace libtrain::detail {

inline constexpr std::uint64_t kSafetensorsPrefix = 8;  // bytes of the length of the header
inline constexpr std::uint64_t kSafetensorsMaxHeader = 100'000'000;
inline constexpr std::string_view kSafetensorsMetadata = "__metadata__";

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors = {};  ///< by offset, which counts from the end of the header
  std::map<std::string, std::string> metadata = {};
};

/// Parses the JSON header. `data_bytes` is what follows it in the file. Throws FileFault.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes);

}  // namespace libtrain::detail
