#pragma once

#include <tools/checkpoint/files.hpp>
#include <tools/checkpoint/report.hpp>

namespace libtrain::checkpoint_tool {

/// Writes a network as an ONNX model, whose name ends in .onnx, with weights in float32: by the names of the weights, a
/// ResNet (resnet_onnx()) or a RoBERTa classifier (roberta_onnx()), with the config.json in the folder of its weights.
/// What the file says of itself, but for its format, is added to the model's metadata. Throws as Input, these two,
/// models::read_roberta_config() and write_onnx(), and UsageError if `output` exists or has another name.
void export_onnx(const InputOptions& input, const OutputOptions& output, Report& report);

}  // namespace libtrain::checkpoint_tool
