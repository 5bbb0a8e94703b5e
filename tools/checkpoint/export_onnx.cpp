#include <tools/checkpoint/export_onnx.hpp>

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>

#include <libtrain/models/roberta/roberta_config.hpp>

#include <tools/checkpoint/folders.hpp>
#include <tools/checkpoint/onnx_model.hpp>
#include <tools/checkpoint/resnet_onnx.hpp>
#include <tools/checkpoint/roberta_onnx.hpp>

namespace libtrain::checkpoint_tool {

namespace {

OnnxModel model_of(const std::map<std::string, TensorInfo>& tensors, const std::string& path) {
  if (!has_roberta_names(tensors)) return resnet_onnx(tensors, path);
  const auto config = std::filesystem::path{path}.replace_filename(kConfigName);
  return roberta_onnx(tensors, path, models::read_roberta_config(config.string()));
}

}  // namespace

void export_onnx(const InputOptions& input, const OutputOptions& output, Report& report) {
  require_usable(output, ".onnx");
  Input weights{input};
  auto& reader = weights.reader();
  std::map<std::string, TensorInfo> tensors;
  for (const auto& [name, position] : weights.names()) tensors.emplace(name, reader.tensors()[position]);

  auto model = model_of(tensors, reader.path());
  model.metadata.insert(reader.metadata().begin(), reader.metadata().end());
  model.metadata.erase("format");  // which framework's tensors safetensors readers make
  write_onnx(output.path, model, [&](std::size_t index) {
    const auto& name = model.weights[index].name;
    return weights.read(weights.names().at(name), {.name = name, .type = ElementType::float32});
  });
  weights.report_infinite(report);
  report_output(output, model.weights.size(), report);
}

}  // namespace libtrain::checkpoint_tool
