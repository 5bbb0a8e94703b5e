#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <libtrain/checkpoint/tensor_info.hpp>

namespace libtrain::checkpoint_tool {

// A neural network in the ONNX format (https://github.com/onnx/onnx/blob/main/docs/IR.md), as far as feed-forward
// networks with weights of float32 need it. All names of inputs, outputs and weights are names of tensors, and unique.

struct OnnxAttribute {
  std::string name = {};
  std::variant<float, std::int64_t, std::vector<std::int64_t>> value = {};
};

/// An operator with one output, which has the node's name.
struct OnnxNode {
  std::string operation = {};  ///< "Conv"
  std::string name = {};
  std::vector<std::string> inputs = {};
  std::vector<OnnxAttribute> attributes = {};
};

/// An input or an output of the network.
struct OnnxValue {
  std::string name = {};
  ElementType type = ElementType::float32;  ///< or int64
  /// A number, or the name of a size that only the caller of the network knows. One name stands for one size.
  std::vector<std::variant<std::int64_t, std::string>> shape = {};
};

/// A tensor of constants, float32. For a few numbers, also int64, there is the operator Constant.
struct OnnxWeight {
  std::string name = {};
  std::vector<std::int64_t> shape = {};  ///< no number is negative
};

struct OnnxModel {
  std::string name = {};
  std::vector<OnnxValue> inputs = {};
  OnnxValue output = {};
  std::vector<OnnxNode> nodes = {};  ///< each after the nodes whose outputs it takes
  std::vector<OnnxWeight> weights = {};
  std::map<std::string, std::string> metadata = {};  ///< free-form strings, which runtimes hand out
};

/// Opset 13 and IR version 7, which belong together: onnxruntime reads them since 1.6, of December 2020.
inline constexpr int kOnnxOpset = 13;
inline constexpr int kOnnxIrVersion = 7;

/// Writes an ONNX file, complete or absent: it is written under a temporary name in the same folder, synced and
/// renamed, and replaces an existing one.
///
/// `data` is called once for each of `model.weights`, in order, with its index, and returns its elements, row-major and
/// little-endian, which are written before the next call: no copy of all data is made.
///
/// Throws UsageError, before anything is written, if the file would have 2 GiB or more, the limit of a message of
/// protocol buffers; UsageError if `data` returns another number of bytes; EnvironmentError that names the file if it
/// cannot be written.
void write_onnx(const std::string& path, const OnnxModel& model,
                const std::function<std::span<const std::byte>(std::size_t index)>& data);

}  // namespace libtrain::checkpoint_tool
