#pragma once

#include <tools/checkpoint/files.hpp>
#include <tools/checkpoint/report.hpp>

namespace libtrain::checkpoint_tool {

/// Writes a ResNet as an ONNX model (resnet_onnx()), whose name ends in .onnx, with weights in float32. What the file
/// says of itself, but for its format, becomes the model's metadata. Throws as Input, resnet_onnx() and write_onnx(),
/// and UsageError if `output` exists or has another name.
void export_onnx(const InputOptions& input, const OutputOptions& output, Report& report);

}  // namespace libtrain::checkpoint_tool
