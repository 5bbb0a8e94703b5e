#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/checkpoint/tensor_info.hpp>

#include <tools/checkpoint/onnx_model.hpp>

namespace libtrain::checkpoint_tool {

/// A model that is built one layer after the other. The functions return the name of what they add.
class OnnxGraph {
 public:
  OnnxModel take() { return std::move(model_); }

 protected:
  std::string add(const std::string& operation, const std::string& name, const std::vector<std::string>& inputs,
                  const std::vector<OnnxAttribute>& attributes = {});
  std::string add_weight(const std::string& name, const std::vector<std::int64_t>& shape);

  OnnxModel model_;
};

/// "F32 of shape [2, 3]"
std::string described(const TensorInfo& tensor);

/// To give as --prefix what a name has before `.` and `known`, as that of a model saved within another one; `advice` if
/// there is none.
std::string advice_on_names(const std::map<std::string, TensorInfo>& tensors, const std::string& known,
                            const std::string& advice);

/// Ensures that a file has the weights of `model`, all of a real floating-point type, and besides them at most the
/// tensors `unused`. Throws UsageError with the first that is missing, is unexpected, and has another shape or type,
/// and how many there are: `fact`, which names the file and the network, then these, then `advice`.
void require_weights(const OnnxModel& model, const std::map<std::string, TensorInfo>& tensors,
                     const std::set<std::string>& unused, const std::string& fact, const std::string& advice);

}  // namespace libtrain::checkpoint_tool
