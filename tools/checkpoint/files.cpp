#include <tools/checkpoint/files.hpp>

#include <filesystem>
#include <system_error>

#include <libtrain/base/error.hpp>
#include <libtrain/base/output_file.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/visible_names.hpp>

#include <tools/checkpoint/folders.hpp>
#include <tools/checkpoint/values.hpp>

namespace libtrain::checkpoint_tool {

namespace fs = std::filesystem;

void require_usable(const OutputOptions& output, std::string_view ending) {
  if (!output.path.ends_with(ending)) {
    throw UsageError(
        text("The output '", output.path, "' must have a name that ends in ", ending, ", the format that is written."));
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

Input::Input(const InputOptions& options)
    : reader_(weights_path(options.path, options.part)),
      names_(detail::visible_names(reader_.tensors(), reader_.path(), options.prefix, options.rename)) {
  if (names_.empty()) {
    throw UsageError(text("'", reader_.path(), "' has no tensors",
                          options.prefix.empty() ? "" : text(" whose names begin with '", options.prefix, "'"),
                          ". Check the path and --prefix."));
  }
}

std::span<const std::byte> Input::read(std::size_t position, const TensorInfo& as) {
  const auto from = reader_.tensors()[position].type;
  const auto elements = reader_.read(position);
  if (from == as.type) return elements;
  const auto count = store_values(read_values(from, elements), as.type, converted_);
  if (count > 0) infinite_[as.name] = {.count = count, .type = as.type};
  return converted_;
}

void Input::report_infinite(Report& report) const {
  report.json["infinite"] = Json::object();
  for (const auto& [name, values] : infinite_) {
    report.json["infinite"][name] = values.count;
    report.line(
        text("warning: ", name, " has ", values.count, " values that are infinite as ", to_string(values.type)));
  }
}

}  // namespace libtrain::checkpoint_tool
