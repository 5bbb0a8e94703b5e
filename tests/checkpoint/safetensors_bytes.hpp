#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace libtrain::test {

/// A safetensors file made of its parts, whatever they are.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string bytes;
  for (std::uint64_t length = header.size(), i = 0; i < 8; ++i, length >>= 8) {
    bytes += static_cast<char>(length & 0xff);
  }
  return (bytes += header) += data;
}

/// Two tensors, an empty one and text.
inline std::string sample_safetensors() {
  return safetensors_bytes(R"({"__metadata__":{"format":"pt","na\u00efve":"\"\n"},)"
                           R"("weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                           R"("empty":{"dtype":"I64","shape":[0,7],"data_offsets":[24,24]},)"
                           R"("steps":{"dtype":"U8","shape":[],"data_offsets":[24,25]}})",
                           std::string(24, '\1') + '\7');
}

}  // namespace libtrain::test
