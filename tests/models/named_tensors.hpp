#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/checkpoint/detail/weights_file.hpp>
#include <libtrain/checkpoint/safetensors.hpp>

namespace libtrain::test {

using NamedTensors = std::map<std::string, at::Tensor>;

/// To a safetensors file, for a Python peer to read.
inline void write_tensors(const std::string& path, const NamedTensors& tensors) {
  std::vector<TensorInfo> infos;
  std::vector<at::Tensor> values;
  for (const auto& [name, tensor] : tensors) {
    values.push_back(tensor.detach().contiguous());
    infos.push_back({name, libtrain::detail::stored_type(name, tensor.scalar_type()), tensor.sizes().vec()});
  }
  write_safetensors(path, infos, [&](std::size_t index) {
    return std::span{static_cast<const std::byte*>(values[index].const_data_ptr()), values[index].nbytes()};
  });
}

}  // namespace libtrain::test
