#include <tools/checkpoint/onnx_model.hpp>

#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include <libtrain/base/build_info.hpp>
#include <libtrain/base/detail/protobuf_wire.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/output_file.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::checkpoint_tool {

namespace {

using detail::WireWriter;

// Field numbers and enumerations of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto, by message.
namespace model_proto {
constexpr std::uint32_t kIrVersion = 1, kProducerName = 2, kProducerVersion = 3, kGraph = 7, kOpsetImport = 8,
                        kMetadata = 14;
}
namespace opset_proto {
constexpr std::uint32_t kDomain = 1, kVersion = 2;
}
namespace string_entry_proto {
constexpr std::uint32_t kKey = 1, kValue = 2;
}
namespace graph_proto {
constexpr std::uint32_t kNode = 1, kName = 2, kInitializer = 5, kInput = 11, kOutput = 12;
}
namespace node_proto {
constexpr std::uint32_t kInput = 1, kOutput = 2, kName = 3, kOperation = 4, kAttribute = 5;
}
namespace attribute_proto {
constexpr std::uint32_t kName = 1, kFloat = 2, kInteger = 3, kIntegers = 8, kType = 20;
constexpr std::uint64_t kTypeFloat = 1, kTypeInteger = 2, kTypeIntegers = 7;
}  // namespace attribute_proto
namespace value_proto {
constexpr std::uint32_t kName = 1, kType = 2;
}
namespace type_proto {
constexpr std::uint32_t kTensor = 1;
}
namespace tensor_type_proto {
constexpr std::uint32_t kElement = 1, kShape = 2;
}
namespace shape_proto {
constexpr std::uint32_t kDimension = 1;
}
namespace dimension_proto {
constexpr std::uint32_t kNumber = 1, kName = 2;
}
namespace tensor_proto {
constexpr std::uint32_t kDimensions = 1, kElement = 2, kName = 8, kData = 9;
}

constexpr std::uint64_t kFloat32 = 1, kInt64 = 7;  // of TensorProto.DataType

constexpr std::uint64_t kLargestMessage = std::numeric_limits<std::int32_t>::max();

std::string encode(const OnnxAttribute& attribute) {
  WireWriter writer;
  writer.bytes(attribute_proto::kName, attribute.name);
  const auto encode_value = [&]<typename Value>(const Value& value) {
    if constexpr (std::is_same_v<Value, float>) {
      writer.fixed32(attribute_proto::kFloat, value);
      writer.varint(attribute_proto::kType, attribute_proto::kTypeFloat);
    } else if constexpr (std::is_same_v<Value, std::int64_t>) {
      writer.varint(attribute_proto::kInteger, static_cast<std::uint64_t>(value));
      writer.varint(attribute_proto::kType, attribute_proto::kTypeInteger);
    } else {
      for (const auto number : value) writer.varint(attribute_proto::kIntegers, static_cast<std::uint64_t>(number));
      writer.varint(attribute_proto::kType, attribute_proto::kTypeIntegers);
    }
  };
  std::visit(encode_value, attribute.value);
  return writer.take();
}

std::string encode(const OnnxNode& node) {
  WireWriter writer;
  for (const auto& input : node.inputs) writer.bytes(node_proto::kInput, input);
  writer.bytes(node_proto::kOutput, node.name);
  writer.bytes(node_proto::kName, node.name);
  writer.bytes(node_proto::kOperation, node.operation);
  for (const auto& attribute : node.attributes) writer.bytes(node_proto::kAttribute, encode(attribute));
  return writer.take();
}

std::string encode(const OnnxValue& value) {
  WireWriter shape;
  for (const auto& size : value.shape) {
    WireWriter dimension;
    if (const auto* const number = std::get_if<std::int64_t>(&size)) {
      dimension.varint(dimension_proto::kNumber, static_cast<std::uint64_t>(*number));
    } else {
      dimension.bytes(dimension_proto::kName, std::get<std::string>(size));
    }
    shape.bytes(shape_proto::kDimension, dimension.message());
  }
  WireWriter tensor;
  tensor.varint(tensor_type_proto::kElement, value.type == ElementType::int64 ? kInt64 : kFloat32);
  tensor.bytes(tensor_type_proto::kShape, shape.message());
  WireWriter type;
  type.bytes(type_proto::kTensor, tensor.message());
  WireWriter writer;
  writer.bytes(value_proto::kName, value.name);
  writer.bytes(value_proto::kType, type.message());
  return writer.take();
}

// A weight as it is written: the beginning of its field in the graph, up to its elements.
struct EncodedWeight {
  std::string beginning = {};
  std::uint64_t data_bytes = 0;
};

// std::nullopt if the elements alone have 2 GiB or more.
std::optional<EncodedWeight> encode(const OnnxWeight& weight) {
  const auto bytes = contiguous_bytes(ElementType::float32, weight.shape);
  if (!bytes || *bytes > kLargestMessage) return std::nullopt;
  WireWriter tensor;
  for (const auto size : weight.shape) tensor.varint(tensor_proto::kDimensions, static_cast<std::uint64_t>(size));
  tensor.varint(tensor_proto::kElement, kFloat32);
  tensor.bytes(tensor_proto::kName, weight.name);
  tensor.begin_bytes(tensor_proto::kData, *bytes);
  WireWriter field;
  field.begin_bytes(graph_proto::kInitializer, tensor.message().size() + *bytes);
  return EncodedWeight{.beginning = field.take() + tensor.message(), .data_bytes = *bytes};
}

// All of the graph but its weights.
std::string encode_structure(const OnnxModel& model) {
  WireWriter graph;
  for (const auto& node : model.nodes) graph.bytes(graph_proto::kNode, encode(node));
  graph.bytes(graph_proto::kName, model.name);
  for (const auto& input : model.inputs) graph.bytes(graph_proto::kInput, encode(input));
  graph.bytes(graph_proto::kOutput, encode(model.output));
  return graph.take();
}

// The model up to the content of its graph, the last field.
std::string encode_beginning(const OnnxModel& model, std::uint64_t graph_bytes) {
  WireWriter writer;
  writer.varint(model_proto::kIrVersion, kOnnxIrVersion);
  writer.bytes(model_proto::kProducerName, "libtrain");
  writer.bytes(model_proto::kProducerVersion, build_info().version);
  WireWriter opset;
  opset.bytes(opset_proto::kDomain, "");  // ONNX's own operators
  opset.varint(opset_proto::kVersion, kOnnxOpset);
  writer.bytes(model_proto::kOpsetImport, opset.message());
  for (const auto& [key, value] : model.metadata) {
    WireWriter entry;
    entry.bytes(string_entry_proto::kKey, key);
    entry.bytes(string_entry_proto::kValue, value);
    writer.bytes(model_proto::kMetadata, entry.message());
  }
  writer.begin_bytes(model_proto::kGraph, graph_bytes);
  return writer.take();
}

[[noreturn]] void fail_too_large(const std::string& path) {
  throw UsageError(
      text("The model does not fit '", path, "': an ONNX file has less than 2 GiB. Export a smaller model."));
}

}  // namespace

void write_onnx(const std::string& path, const OnnxModel& model,
                const std::function<std::span<const std::byte>(std::size_t index)>& data) {
  const auto structure = encode_structure(model);
  std::vector<EncodedWeight> weights;
  std::uint64_t graph_bytes = structure.size();
  for (const auto& weight : model.weights) {
    auto encoded = encode(weight);
    if (!encoded) fail_too_large(path);
    graph_bytes += encoded->beginning.size() + encoded->data_bytes;
    weights.push_back(std::move(*encoded));
  }
  const auto beginning = encode_beginning(model, graph_bytes);
  if (beginning.size() + graph_bytes > kLargestMessage) fail_too_large(path);

  detail::OutputFile file{path};
  file.write(beginning);
  file.write(structure);
  for (std::size_t index = 0; index < weights.size(); ++index) {
    const auto elements = data(index);
    if (elements.size() != weights[index].data_bytes) {
      throw UsageError(text("Weight '", model.weights[index].name, "' has ", weights[index].data_bytes,
                            " bytes, but its data ", elements.size(), ". Give the elements of its shape as float32."));
    }
    file.write(weights[index].beginning);
    file.write({reinterpret_cast<const char*>(elements.data()), elements.size()});
  }
  file.commit();
}

}  // namespace libtrain::checkpoint_tool
