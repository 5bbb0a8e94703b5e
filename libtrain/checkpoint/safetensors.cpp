#include <libtrain/checkpoint/safetensors.hpp>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include <libtrain/base/detail/little_endian.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/output_file.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/file_fault.hpp>
#include <libtrain/checkpoint/detail/input_file.hpp>
#include <libtrain/checkpoint/detail/safetensors_header.hpp>

namespace libtrain {

namespace {

detail::SafetensorsHeader read_header(const detail::InputFile& file) {
  if (file.size() < detail::kSafetensorsPrefix) {
    throw detail::FileFault{text("expected the length of the header in 8 bytes, found ", file.size(), " bytes")};
  }
  const auto length = detail::load_little_endian<std::uint64_t>(file.read(0, detail::kSafetensorsPrefix).data());
  const std::uint64_t left = file.size() - detail::kSafetensorsPrefix;
  if (length > std::min(left, detail::kSafetensorsMaxHeader)) {
    throw detail::FileFault{text("expected a header of at most ", std::min(left, detail::kSafetensorsMaxHeader),
                                 " bytes, found ", length, " as its length")};
  }
  auto header = detail::parse_safetensors_header(file.read(detail::kSafetensorsPrefix, length), left - length);
  for (auto& tensor : header.tensors) tensor.offset += detail::kSafetensorsPrefix + length;
  return header;
}

std::string json_string(const std::string& value) {
  try {
    return nlohmann::json(value).dump();
  } catch (const nlohmann::json::type_error&) {
    throw UsageError(text("The name or text '", value, "' for a safetensors file is not valid UTF-8. Rename it."));
  }
}

// In the order of the file.
std::vector<std::size_t> file_order(const std::vector<TensorInfo>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t left, std::size_t right) {
    const auto& [first, second] = std::tie(tensors[left], tensors[right]);
    return std::tie(second.type, first.name) < std::tie(first.type, second.name);
  });
  return order;
}

std::uint64_t require_storable(const TensorInfo& tensor) {
  const auto refuse = [&](const std::string& reason) {
    throw UsageError(text("Tensor '", tensor.name, "' cannot be written to a safetensors file: ", reason, "."));
  };
  if (tensor.name == detail::kSafetensorsMetadata) refuse("this name is reserved. Rename it");
  if (tensor.name.size() > detail::kMaxNameBytes)
    refuse(text("its name is longer than ", detail::kMaxNameBytes, " bytes"));
  if (tensor.shape.size() > detail::kMaxDimensions)
    refuse(text("it has more than ", detail::kMaxDimensions, " dimensions"));
  if (tensor.type == ElementType::complex128) refuse("the format has no complex128. Convert it to complex64");
  const auto bytes = contiguous_bytes(tensor.type, tensor.shape);
  if (!bytes) refuse(text("its shape [", join(tensor.shape, ", "), "] has a negative or too large size"));
  return *bytes;
}

std::string make_header(const std::vector<TensorInfo>& tensors, const std::vector<std::size_t>& order,
                        const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  const auto separate = [&] {
    if (json.back() != '{') json += ',';
  };
  if (!metadata.empty()) {
    json += R"("__metadata__":{)";
    for (const auto& [key, value] : metadata) {
      separate();
      json += json_string(key) + ':' + json_string(value);
    }
    json += '}';
  }
  std::set<std::string_view> names;
  std::uint64_t end = 0;
  for (const std::size_t index : order) {
    const TensorInfo& tensor = tensors[index];
    if (!names.insert(tensor.name).second) {
      throw UsageError(text("Two tensors for a safetensors file are called '", tensor.name, "'. Rename one."));
    }
    const std::uint64_t begin = end;
    if (__builtin_add_overflow(end, require_storable(tensor), &end) || end >> 63 != 0) {
      throw UsageError("The tensors for a safetensors file have 2^63 bytes or more. Write several files.");
    }
    separate();
    json += text(json_string(tensor.name), R"(:{"dtype":")", to_string(tensor.type), R"(","shape":[)",
                 join(tensor.shape, ","), R"(],"data_offsets":[)", begin, ',', end, "]}");
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');  // the data is aligned, too
  return json;
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::string path)
    : file_(std::make_unique<detail::InputFile>(std::move(path), "Safetensors file")) {
  try {
    auto header = read_header(*file_);
    tensors_ = std::move(header.tensors);
    metadata_ = std::move(header.metadata);
  } catch (const detail::FileFault& fault) {
    throw EnvironmentError(text(file_->description(), ": ", fault.sentence, ". ", fault.advice));
  }
  for (std::size_t position = 0; position < tensors_.size(); ++position) {
    positions_.emplace(tensors_[position].info.name, position);
  }
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

const std::string& SafetensorsFile::path() const {
  return file_->path();
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = positions_.find(name);
  return found == positions_.end() ? nullptr : &tensors_[found->second];
}

void SafetensorsFile::read(const StoredTensor& tensor, std::span<std::byte> to) const {
  if (to.size() != tensor.bytes) {
    throw UsageError(text("Tensor '", tensor.info.name, "' of '", path(), "' has ", tensor.bytes,
                          " bytes, but the memory to read it into has ", to.size(), "."));
  }
  file_->read_at(tensor.offset, to);
}

std::uint32_t SafetensorsFile::crc32c(const StoredTensor& tensor) const {
  return file_->crc32c(tensor.offset, tensor.bytes);
}

void write_safetensors(const SafetensorsSink& sink, const std::vector<TensorInfo>& tensors,
                       const std::function<std::span<const std::byte>(std::size_t index)>& data,
                       const std::map<std::string, std::string>& metadata) {
  if (tensors.size() > detail::kMaxTensors) {
    throw UsageError(
        text("A safetensors file has at most ", detail::kMaxTensors, " tensors, not ", tensors.size(), "."));
  }
  const auto order = file_order(tensors);
  const auto header = make_header(tensors, order, metadata);
  if (header.size() > detail::kSafetensorsMaxHeader) {
    throw UsageError(text("The header of a safetensors file has at most ", detail::kSafetensorsMaxHeader,
                          " bytes, not ", header.size(), ". Shorten names, or write several files."));
  }
  std::string beginning;
  detail::append_little_endian<std::uint64_t>(beginning, header.size());
  sink.header(beginning + header);
  for (const std::size_t index : order) {
    const TensorInfo& tensor = tensors[index];
    const auto bytes = data(index);
    if (bytes.size() != *contiguous_bytes(tensor.type, tensor.shape)) {
      throw UsageError(text("Tensor '", tensor.name, "' has ", bytes.size(), " bytes of data, but ",
                            to_string(tensor.type), " of shape [", join(tensor.shape, ", "), "] needs ",
                            *contiguous_bytes(tensor.type, tensor.shape), "."));
    }
    sink.tensor(tensor.name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
}

void write_safetensors(const std::string& path, const std::vector<TensorInfo>& tensors,
                       const std::function<std::span<const std::byte>(std::size_t index)>& data,
                       const std::map<std::string, std::string>& metadata) {
  std::optional<detail::OutputFile> file;
  const SafetensorsSink sink{
      .header = [&](std::string_view bytes) { file.emplace(path).write(bytes); },
      .tensor = [&](const std::string& /*name*/, std::string_view bytes) { file->write(bytes); },
  };
  write_safetensors(sink, tensors, data, metadata);
  file->commit();
}

}  // namespace libtrain
