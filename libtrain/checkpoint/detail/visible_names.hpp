#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <libtrain/checkpoint/tensor_info.hpp>

namespace libtrain::detail {

/// The names under which tensors of the file `path` are used, with their positions in `tensors`: only those that begin
/// with `prefix`, without it, and then with the first of the changes that fits. Those that begin with "::" are numbers
/// of libtrain's in a checkpoint, such as the updates of a moving average, and left out. Throws UsageError, which calls
/// the changes 'rename', if two tensors get one name.
std::map<std::string, std::size_t> visible_names(const std::vector<TensorInfo>& tensors, const std::string& path,
                                                 const std::string& prefix, const std::vector<NameChange>& rename);

}  // namespace libtrain::detail
