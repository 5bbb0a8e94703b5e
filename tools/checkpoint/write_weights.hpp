#pragma once

#include <optional>
#include <string>
#include <vector>

#include <libtrain/checkpoint/tensor_info.hpp>

#include <tools/checkpoint/files.hpp>
#include <tools/checkpoint/report.hpp>

namespace libtrain::checkpoint_tool {

/// Writes the mean of the weights of several files of weights, or of the part `part` of several checkpoints (Izmailov
/// et al., "Averaging weights leads to wider optima and better generalization", 2018): floating-point tensors are
/// summed in float64, in the order of `inputs`, and rounded once; all others are those of the last. Of each file one
/// tensor at a time is in memory, and a float64 sum.
///
/// Throws UsageError if names, shapes or types differ, for types that is_scaled(), and if `output` exists or does not
/// end in .safetensors; EnvironmentError if a file is damaged or cannot be read or written.
void average(const OutputOptions& output, const std::vector<std::string>& inputs,
             const std::optional<std::string>& part, Report& report);

struct ConvertOptions {
  InputOptions input = {};
  std::optional<ElementType> type = {};  ///< of real floating-point tensors of at least 16 bits
  OutputOptions output = {};             ///< as for average()
};

/// Writes the tensors of a file, or of a part of a checkpoint, under other names or with another type. Values that are
/// finite in the input and infinite in the output are reported. Throws UsageError if no tensor is left, or two get one
/// name, and as average().
void convert(const ConvertOptions& options, Report& report);

}  // namespace libtrain::checkpoint_tool
