#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/checkpoint/tensor_info.hpp>

namespace libtrain::detail {

/// A tensor of a pickled state dict: a view of a storage.
struct PickledTensor {
  TensorInfo info = {};
  std::vector<std::int64_t> strides = {};  ///< in elements, none is negative
  std::uint64_t first = 0;                 ///< element of the storage
  std::string storage = {};                ///< its key
  std::uint64_t storage_bytes = 0;
};

/// Reads the pickle of a state dict, or of dicts, lists and tuples of tensors and of plain values, in each other. A
/// tensor of an inner dict has the keys on the way to it as its name, with dots between: "model.conv1.weight";
/// positions are keys of lists. Other values are left out. Each tensor lies within its storage.
///
/// Nothing is executed: of the pickle machine it has only the operations that put such values together. Of Python's
/// globals it knows, by name, those that make an OrderedDict, a tensor, a parameter, a torch.Size, and the types of
/// elements and storages. Throws FileFault for everything else, naming the global, and for tensors that are not plain
/// numbers in memory (quantized, conjugated).
///
/// Memory is bounded by a multiple of the size of the pickle, and by 2 GiB.
std::vector<PickledTensor> read_state_dict_pickle(std::string_view pickle);

}  // namespace libtrain::detail
