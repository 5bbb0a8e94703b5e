#include <tools/checkpoint/write_weights.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/output_file.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/visible_names.hpp>
#include <libtrain/checkpoint/safetensors.hpp>

#include <tools/checkpoint/folders.hpp>
#include <tools/checkpoint/tensor_reader.hpp>
#include <tools/checkpoint/values.hpp>

namespace libtrain::checkpoint_tool {

namespace {

namespace fs = std::filesystem;

void require_usable(const OutputOptions& output) {
  if (!output.path.ends_with(".safetensors")) {
    throw UsageError(text("The output '", output.path,
                          "' must have a name that ends in .safetensors, the format that "
                          "is written."));
  }
  std::error_code error;
  if (output.existing == Existing::refuse && fs::exists(fs::symlink_status(output.path, error))) {
    throw UsageError(text("The output '", output.path, "' exists. Give another name, or --force to replace it."));
  }
  detail::OutputFile::require_writable(output.path);
}

void report_output(const OutputOptions& output, std::size_t tensors, Report& report) {
  const auto bytes = fs::file_size(output.path);
  report.json["output"] = output.path;
  report.json["tensors"] = tensors;
  report.json["bytes"] = bytes;
  report.line(text("wrote ", output.path, ", tensors ", tensors, ", bytes ", bytes));
}

// The positions of the tensors of `model` in `other`, which must have the same names, shapes and types.
std::vector<std::size_t> positions_in(const TensorReader& other, const TensorReader& model) {
  const auto refuse = [&](const std::string& reason) {
    throw UsageError(text("'", other.path(), "' and '", model.path(), "' cannot be averaged: ", reason,
                          ". Give files of one model."));
  };
  std::vector<std::size_t> positions;
  for (const auto& tensor : model.tensors()) {
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
    if (!model.find(tensor.name)) refuse(text("only the first has a tensor '", tensor.name, "'"));
  }
  return positions;
}

}  // namespace

void average(const OutputOptions& output, const std::vector<std::string>& inputs, const std::string& part,
             Report& report) {
  require_usable(output);
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
  std::vector<std::byte> mean;
  const auto data = [&](std::size_t index) -> std::span<const std::byte> {
    const auto type = last.tensors()[index].type;
    if (!has_fractions(type)) return last.read(index);
    auto values = read_values(type, readers[0].read(positions[0][index]));
    for (std::size_t i = 1; i < readers.size(); ++i) add_values(type, readers[i].read(positions[i][index]), values);
    for (auto& value : values) value /= static_cast<double>(readers.size());
    store_values(values, type, mean);
    return mean;
  };
  write_safetensors(output.path, last.tensors(), data, last.metadata());
  report.json["inputs"] = inputs;
  report_output(output, last.tensors().size(), report);
}

void convert(const ConvertOptions& options, Report& report) {
  require_usable(options.output);
  TensorReader reader{weights_path(options.input, options.part)};
  const auto names = detail::visible_names(reader.tensors(), reader.path(), options.prefix, options.rename);
  if (names.empty()) {
    throw UsageError(text("'", reader.path(), "' has no tensors",
                          options.prefix.empty() ? "" : text(" whose names begin with '", options.prefix, "'"),
                          ". Check the path and --prefix."));
  }
  std::vector<TensorInfo> tensors;
  std::vector<std::size_t> positions;
  for (const auto& [name, position] : names) {
    auto tensor = reader.tensors()[position];
    tensor.name = name;
    if (options.type && has_fractions(tensor.type) && !is_complex(tensor.type)) tensor.type = *options.type;
    tensors.push_back(std::move(tensor));
    positions.push_back(position);
  }
  std::vector<std::byte> converted;
  Json infinite = Json::object();
  const auto data = [&](std::size_t index) -> std::span<const std::byte> {
    const auto from = reader.tensors()[positions[index]].type;
    const auto elements = reader.read(positions[index]);
    if (from == tensors[index].type) return elements;
    if (const auto count = store_values(read_values(from, elements), tensors[index].type, converted); count > 0) {
      infinite[tensors[index].name] = count;
    }
    return converted;
  };
  write_safetensors(options.output.path, tensors, data, reader.metadata());
  for (const auto& [name, count] : infinite.items()) {
    report.line(text("warning: ", name, " has ", count, " values that are infinite as ", to_string(*options.type)));
  }
  report.json["infinite"] = infinite;
  report_output(options.output, tensors.size(), report);
}

}  // namespace libtrain::checkpoint_tool
