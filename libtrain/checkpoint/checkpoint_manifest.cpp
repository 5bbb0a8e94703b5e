#include <libtrain/checkpoint/checkpoint_manifest.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <libtrain/base/detail/crc32c.hpp>
#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kManifestFormat = "libtrain checkpoint";
constexpr std::int64_t kManifestVersion = 1;
constexpr int kDeepestManifest = 32;  // objects and arrays in each other
constexpr std::size_t kLongestFileName = 200;

// The end of every manifest, in all versions of the format: the checksum of the bytes before it.
constexpr std::string_view kSealBegin = ",\n \"manifest_crc32c\": \"0x";
constexpr std::string_view kSealEnd = "\"\n}\n";
constexpr std::size_t kSealLength = kSealBegin.size() + 8 + kSealEnd.size();

std::string seal_of(std::string_view sealed) {
  return text(kSealBegin, detail::hexadecimal(detail::crc32c(sealed), 8).substr(2), kSealEnd);
}

// The part of a manifest before its seal; std::nullopt if it does not end with one.
std::optional<std::string_view> sealed_part(std::string_view manifest) {
  if (manifest.size() < kSealLength) return std::nullopt;
  const auto sealed = manifest.substr(0, manifest.size() - kSealLength);
  const auto seal = manifest.substr(sealed.size());
  if (!seal.starts_with(kSealBegin) || !seal.ends_with(kSealEnd)) return std::nullopt;
  return sealed;
}

/// Thrown with what is wrong in a text; the callers add whose text it is.
struct Malformed {
  std::string what;
};

// A parser callback that refuses what the library's parser accepts: deep nesting and names that occur twice.
class StrictParser {
 public:
  static Json parse(std::string_view json) {
    StrictParser strict;
    try {
      return Json::parse(json, [&strict](int depth, Json::parse_event_t event, const Json& value) {
        strict.check(depth, event, value);
        return true;
      });
    } catch (const Json::parse_error& error) {
      throw Malformed{text("it is not valid JSON at byte ", error.byte)};
    } catch (const Json::exception&) {
      throw Malformed{"it has a number that is too large"};
    }
  }

 private:
  void check(int depth, Json::parse_event_t event, const Json& value) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= kDeepestManifest) throw Malformed{text("it is nested more than ", kDeepestManifest, " levels deep")};
    }
    if (event == Event::object_start) names_.emplace_back();
    if (event == Event::object_end) names_.pop_back();
    if (event == Event::key && !names_.back().insert(value.get<std::string>()).second) {
      throw Malformed{text("it has '", value.get<std::string>(), "' twice")};
    }
  }

  std::vector<std::set<std::string>> names_;  // of the objects that are open
};

const Json& member(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) throw Malformed{text("it has no '", name, "'")};
  return *found;
}

[[noreturn]] void refuse_type(const char* name, const char* expected) {
  throw Malformed{text("its '", name, "' is not ", expected)};
}

template <typename Number>
Number natural_number(const Json& object, const char* name) {
  const auto& value = member(object, name);
  if (!value.is_number_unsigned()) refuse_type(name, "a whole number");
  const auto number = value.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(std::numeric_limits<Number>::max())) refuse_type(name, "in range");
  return static_cast<Number>(number);
}

const std::string& string_in(const Json& object, const char* name) {
  const auto& value = member(object, name);
  if (!value.is_string()) refuse_type(name, "a string");
  return value.get_ref<const std::string&>();
}

const Json& array_in(const Json& object, const char* name) {
  const auto& value = member(object, name);
  if (!value.is_array()) refuse_type(name, "an array");
  return value;
}

const Json& object_in(const Json& object, const char* name) {
  const auto& value = member(object, name);
  if (!value.is_object()) refuse_type(name, "an object");
  return value;
}

std::uint32_t checksum_in(const Json& object, const char* name) {
  const auto& word = string_in(object, name);
  std::uint32_t checksum = 0;
  const auto [end, error] =
      std::from_chars(word.data() + std::min<std::size_t>(2, word.size()), word.data() + word.size(), checksum, 16);
  if (error != std::errc{} || detail::hexadecimal(checksum, 8) != word) refuse_type(name, "0x and 8 digits");
  return checksum;
}

Json json_of(const CheckpointTensor& tensor) {
  return {{"name", tensor.name},
          {"offset", tensor.offset},
          {"bytes", tensor.bytes},
          {"crc32c", detail::hexadecimal(tensor.crc32c, 8)}};
}

Json json_of(const std::vector<CheckpointFile>& files) {
  auto array = Json::array();
  for (const auto& file : files) {
    auto tensors = Json::array();
    for (const auto& tensor : file.tensors) tensors.push_back(json_of(tensor));
    array.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"crc32c", detail::hexadecimal(file.crc32c, 8)},
                     {"tensors", std::move(tensors)}});
  }
  return array;
}

CheckpointTensor tensor_of(const Json& json) {
  if (!json.is_object()) refuse_type("tensors", "an array of objects");
  return {.name = string_in(json, "name"),
          .offset = natural_number<std::uint64_t>(json, "offset"),
          .bytes = natural_number<std::uint64_t>(json, "bytes"),
          .crc32c = checksum_in(json, "crc32c")};
}

std::vector<CheckpointFile> files_of(const Json& array) {
  std::vector<CheckpointFile> files;
  for (const auto& json : array) {
    if (!json.is_object()) refuse_type("files", "an array of objects");
    CheckpointFile file{.name = string_in(json, "name"),
                        .bytes = natural_number<std::uint64_t>(json, "bytes"),
                        .crc32c = checksum_in(json, "crc32c")};
    for (const auto& tensor : array_in(json, "tensors")) file.tensors.push_back(tensor_of(tensor));
    files.push_back(std::move(file));
  }
  return files;
}

void require_consistent(const std::vector<CheckpointFile>& files) {
  std::set<std::string_view> names;
  for (const auto& file : files) {
    if (!is_checkpoint_file_name(file.name)) {
      throw Malformed{text("it names a file '", file.name, "', which is not 1 to ", kLongestFileName,
                           " letters, digits, '.', '_' and '-'")};
    }
    if (!names.insert(file.name).second) throw Malformed{text("it names the file '", file.name, "' twice")};
    for (const auto& tensor : file.tensors) {
      if (tensor.offset > file.bytes || tensor.bytes > file.bytes - tensor.offset) {
        throw Malformed{text("the tensor '", tensor.name, "' is not within the ", file.bytes, " bytes of the file '",
                             file.name, "'")};
      }
    }
  }
}

void require_consistent(const CheckpointManifest& manifest) {
  if (manifest.step < 0) throw Malformed{text("its step is ", manifest.step)};
  if (manifest.epoch < 0) throw Malformed{text("its epoch is ", manifest.epoch)};
  if (manifest.world_size < 1) throw Malformed{text("its world size is ", manifest.world_size)};
  if (manifest.time < 0) throw Malformed{text("its time is ", manifest.time)};
  if (manifest.run_ids.empty()) throw Malformed{"it names no run"};
  require_consistent(manifest.files);
}

// Masks the parts of a configuration that may be secrets: values of members with such names, and queries of URLs.
void mask_secrets(Json& json) {
  if (json.is_string()) {
    json = detail::redact(json.get_ref<const std::string&>());
  } else if (json.is_array()) {
    for (auto& value : json) mask_secrets(value);
  } else if (json.is_object()) {
    for (auto& [name, value] : json.items()) {
      if (detail::looks_secret(name) && value.is_string()) {
        value = "***";
      } else {
        mask_secrets(value);
      }
    }
  }
}

Json configuration_of(const std::string& configuration) {
  auto json = StrictParser::parse(configuration);
  if (!json.is_object()) throw Malformed{"the configuration is not a JSON object"};
  mask_secrets(json);
  return json;
}

Json json_of(const CheckpointManifest& manifest) {
  auto metrics = Json::object();
  for (const auto& [name, value] : manifest.metrics) {
    if (std::isfinite(value)) metrics[name] = value;
  }
  return {{"format", kManifestFormat},
          {"version", kManifestVersion},
          {"step", manifest.step},
          {"epoch", manifest.epoch},
          {"world_size", manifest.world_size},
          {"libtrain", manifest.libtrain_version},
          {"torch", manifest.torch_version},
          {"time", manifest.time},
          {"run_ids", manifest.run_ids},
          {"metrics", std::move(metrics)},
          {"configuration", configuration_of(manifest.configuration)},
          {"files", json_of(manifest.files)}};
}

CheckpointManifest manifest_of(const Json& json) {
  CheckpointManifest manifest{.step = natural_number<std::int64_t>(json, "step"),
                              .epoch = natural_number<std::int64_t>(json, "epoch"),
                              .world_size = natural_number<int>(json, "world_size"),
                              .libtrain_version = string_in(json, "libtrain"),
                              .torch_version = string_in(json, "torch"),
                              .time = natural_number<std::int64_t>(json, "time")};
  for (const auto& run : array_in(json, "run_ids")) {
    if (!run.is_string()) refuse_type("run_ids", "an array of strings");
    manifest.run_ids.push_back(run.get<std::string>());
  }
  for (const auto& [name, value] : object_in(json, "metrics").items()) {
    if (!value.is_number()) refuse_type("metrics", "an object of numbers");
    manifest.metrics.emplace(name, value.get<double>());
  }
  manifest.configuration = object_in(json, "configuration").dump();
  manifest.files = files_of(array_in(json, "files"));
  require_consistent(manifest);
  return manifest;
}

void require_known_version(const Json& json, const std::string& name) {
  if (!json.is_object() || !json.contains("format") || json["format"] != kManifestFormat) {
    throw Malformed{text("it is not the manifest of a ", kManifestFormat)};
  }
  const auto version = natural_number<std::int64_t>(json, "version");
  if (version == kManifestVersion) return;
  if (version == 0) throw Malformed{"its version is 0"};
  throw CheckpointVersionError(text("'", name, "' has version ", version,
                                    " of the checkpoint format; this libtrain reads ", "version ", kManifestVersion,
                                    ". Use the libtrain that wrote it, or a newer one."));
}

}  // namespace

bool is_checkpoint_file_name(std::string_view name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= kLongestFileName && name.front() != '.' && name != detail::kManifestName &&
         std::all_of(name.begin(), name.end(), is_allowed);
}

std::string to_text(const CheckpointManifest& manifest) try {
  require_consistent(manifest);
  auto json = json_of(manifest).dump(1);
  json.resize(json.size() - std::string_view{"\n}"}.size());
  json += seal_of(json);
  if (json.size() > detail::kLongestManifest) {
    throw Malformed{text("it has ", json.size(), " bytes, of ", detail::kLongestManifest, " allowed")};
  }
  return json;
} catch (const Malformed& malformed) {
  throw UsageError(text("The manifest of the checkpoint of step ", manifest.step, " cannot be written: ",
                        malformed.what, ". Correct what the program gives to CheckpointWriter."));
} catch (const Json::exception&) {
  throw UsageError(text("The manifest of the checkpoint of step ", manifest.step,
                        " cannot be written: it has text that is not UTF-8. Correct what the program gives to "
                        "CheckpointWriter."));
}

CheckpointManifest parse_checkpoint_manifest(std::string_view manifest, const std::string& name) try {
  if (manifest.size() > detail::kLongestManifest) throw Malformed{text("it has ", manifest.size(), " bytes")};
  const auto sealed = sealed_part(manifest);
  if (!sealed) throw Malformed{"it does not end with its checksum"};
  if (manifest.substr(sealed->size()) != seal_of(*sealed)) throw Malformed{"its checksum is wrong"};
  const auto json = StrictParser::parse(manifest);
  require_known_version(json, name);
  return manifest_of(json);
} catch (const Malformed& malformed) {
  throw CheckpointDamagedError(
      text("The checkpoint manifest '", name, "' is damaged: ", malformed.what, ". Use another checkpoint."));
}

std::string to_text(const std::vector<CheckpointFile>& files) try {
  require_consistent(files);
  return json_of(files).dump();
} catch (const Malformed& malformed) {
  throw UsageError(
      text("The list of checkpoint files cannot be sent: ", malformed.what, ". Correct the file entries."));
} catch (const Json::exception&) {
  throw UsageError("The list of checkpoint files has a name that is not UTF-8. Correct the name.");
}

std::vector<CheckpointFile> parse_checkpoint_files(std::string_view list) try {
  const auto json = StrictParser::parse(list);
  if (!json.is_array()) throw Malformed{"it is not an array"};
  auto files = files_of(json);
  require_consistent(files);
  return files;
} catch (const Malformed& malformed) {
  throw UsageError(
      text("A list of checkpoint files is invalid: ", malformed.what, ". Pass what to_text() of a rank returned."));
}

}  // namespace libtrain
