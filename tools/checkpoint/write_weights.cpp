#include <tools/checkpoint/write_weights.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/safetensors.hpp>

#include <tools/checkpoint/files.hpp>
#include <tools/checkpoint/folders.hpp>
#include <tools/checkpoint/tensor_reader.hpp>
#include <tools/checkpoint/values.hpp>

namespace libtrain::checkpoint_tool {

namespace {

// libtrain's own numbers in a checkpoint, such as the updates of a moving average, are no weights.
bool is_weight(const TensorInfo& tensor) {
  return !tensor.name.starts_with("::");
}

// The positions of the weights of `model` in `other`, which must have the same names, shapes and types; others have
// none.
std::vector<std::size_t> positions_in(const TensorReader& other, const TensorReader& model) {
  const auto refuse = [&](const std::string& reason) {
    throw UsageError(text("'", other.path(), "' and '", model.path(), "' cannot be averaged: ", reason,
                          ". Give files of one model."));
  };
  std::vector<std::size_t> positions;
  for (const auto& tensor : model.tensors()) {
    if (!is_weight(tensor)) {
      positions.push_back(0);
      continue;
    }
    const auto position = other.find(tensor.name);
    if (!position) refuse(text("the first has no tensor '", tensor.name, "'"));
    const auto& found = other.tensors()[*position];
    if (found.type != tensor.type || found.shape != tensor.shape) {
      refuse(text("tensor '", tensor.name, "' is ", to_string(found.type), " of shape [", join(found.shape, ", "),
                  "] and ", to_string(tensor.type), " of shape [", join(tensor.shape, ", "), "]"));
    }
    positions.push_back(*position);
  }
  for (const auto& tensor : other.tensors()) {
    if (is_weight(tensor) && !model.find(tensor.name)) refuse(text("only the first has a tensor '", tensor.name, "'"));
  }
  return positions;
}

}  // namespace

void average(const OutputOptions& output, const std::vector<std::string>& inputs,
             const std::optional<std::string>& part, Report& report) {
  require_usable(output, kPartEnding);
  std::vector<TensorReader> readers;
  for (const auto& input : inputs) readers.emplace_back(weights_path(input, part));
  auto& last = readers.back();
  std::vector<std::vector<std::size_t>> positions;
  for (const auto& reader : readers) positions.push_back(positions_in(reader, last));
  for (const auto& tensor : last.tensors()) {
    if (!is_scaled(tensor.type)) continue;
    throw UsageError(text("Tensor '", tensor.name, "' of '", last.path(), "' cannot be averaged: elements of type ",
                          to_string(tensor.type),
                          " depend on scales in other tensors. Average the weights that it "
                          "was made from."));
  }
  std::vector<TensorInfo> kept;
  std::vector<std::size_t> places;
  for (std::size_t place = 0; place < last.tensors().size(); ++place) {
    if (!is_weight(last.tensors()[place])) continue;
    kept.push_back(last.tensors()[place]);
    places.push_back(place);
  }
  std::vector<std::byte> mean;
  const auto data = [&](std::size_t number) -> std::span<const std::byte> {
    const auto index = places[number];
    const auto type = last.tensors()[index].type;
    if (!has_fractions(type)) return last.read(index);
    auto values = read_values(type, readers[0].read(positions[0][index]));
    for (std::size_t i = 1; i < readers.size(); ++i) add_values(type, readers[i].read(positions[i][index]), values);
    for (auto& value : values) value /= static_cast<double>(readers.size());
    store_values(values, type, mean);
    return mean;
  };
  write_safetensors(output.path, kept, data, last.metadata());
  report.json["inputs"] = inputs;
  report_output(output, kept.size(), report);
}

void convert(const ConvertOptions& options, Report& report) {
  require_usable(options.output, kPartEnding);
  Input input{options.input};
  std::vector<TensorInfo> tensors;
  std::vector<std::size_t> positions;
  for (const auto& [name, position] : input.names()) {
    auto tensor = input.reader().tensors()[position];
    tensor.name = name;
    if (options.type && has_fractions(tensor.type) && !is_complex(tensor.type)) tensor.type = *options.type;
    tensors.push_back(std::move(tensor));
    positions.push_back(position);
  }
  write_safetensors(
      options.output.path, tensors, [&](std::size_t index) { return input.read(positions[index], tensors[index]); },
      input.reader().metadata());
  input.report_infinite(report);
  report_output(options.output, tensors.size(), report);
}

}  // namespace libtrain::checkpoint_tool
