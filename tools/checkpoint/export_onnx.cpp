#include <tools/checkpoint/export_onnx.hpp>

#include <cstddef>
#include <map>
#include <string>

#include <tools/checkpoint/onnx_model.hpp>
#include <tools/checkpoint/resnet_onnx.hpp>

namespace libtrain::checkpoint_tool {

void export_onnx(const InputOptions& input, const OutputOptions& output, Report& report) {
  require_usable(output, ".onnx");
  Input weights{input};
  auto& reader = weights.reader();
  std::map<std::string, TensorInfo> tensors;
  for (const auto& [name, position] : weights.names()) tensors.emplace(name, reader.tensors()[position]);

  auto model = resnet_onnx(tensors, reader.path());
  model.metadata = reader.metadata();
  model.metadata.erase("format");  // which framework's tensors safetensors readers make
  write_onnx(output.path, model, [&](std::size_t index) {
    const auto& name = model.weights[index].name;
    return weights.read(weights.names().at(name), {.name = name, .type = ElementType::float32});
  });
  weights.report_infinite(report);
  report_output(output, model.weights.size(), report);
}

}  // namespace libtrain::checkpoint_tool
