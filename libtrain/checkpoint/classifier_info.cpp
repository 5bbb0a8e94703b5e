#include <libtrain/checkpoint/classifier_info.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string_view>

#include <nlohmann/json.hpp>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/weights_format.hpp>
#include <libtrain/checkpoint/safetensors.hpp>

namespace libtrain {

namespace {

using Json = nlohmann::json;
using Metadata = std::map<std::string, std::string>;

constexpr int kLongestSide = 65535;  // of a JPEG, and of a crop

bool are_channels(const std::vector<double>& values, const std::function<bool(double)>& is_right) {
  return (values.size() == 1 || values.size() == 3) && std::ranges::all_of(values, is_right);
}

bool is_finite(double value) {
  return std::isfinite(value);
}

bool is_positive(double value) {
  return std::isfinite(value) && value > 0;
}

void check(const ClassifierInfo& info) {
  if (info.image_side < 1 || info.image_side > info.short_side || info.short_side > kLongestSide) {
    throw UsageError(text("ClassifierInfo has an image_side of ", info.image_side, " and a short_side of ",
                          info.short_side, ". Set them to 1 <= image_side <= short_side <= ", kLongestSide, "."));
  }
  if (!are_channels(info.mean, is_finite) || !are_channels(info.standard_deviation, is_positive) ||
      info.mean.size() != info.standard_deviation.size()) {
    throw UsageError(text("ClassifierInfo has the mean [", join(info.mean, ", "), "] and the standard_deviation [",
                          join(info.standard_deviation, ", "),
                          "]. Set both to 1 or 3 finite numbers, with deviations above 0."));
  }
}

// `what` is whose name may not be UTF-8.
std::string to_json(const Json& value, std::string_view what) try {
  return value.dump();
} catch (const Json::exception&) {
  throw UsageError(text("A name of ", what,
                        " is not UTF-8: ", value.dump(-1, ' ', false, Json::error_handler_t::replace), ". Rename it."));
}

// Reads the values of one file.
class InfoReader {
 public:
  InfoReader(const Metadata& metadata, const std::string& path) : metadata_(metadata), path_(path) {}

  ClassifierInfo read() const {
    ClassifierInfo info;
    if (const auto* value = find("model")) info.model = *value;
    if (const auto* value = find("classes")) info.classes = names("classes", *value);
    if (const auto* value = find("image_side")) info.image_side = side("image_side", *value, 1);
    if (const auto* value = find("short_side")) info.short_side = side("short_side", *value, info.image_side);
    if (info.short_side < info.image_side) {
      refuse("image_side", *find("image_side"), text("more than the short_side, which is ", info.short_side));
    }
    if (const auto* value = find("mean")) info.mean = channels("mean", *value, is_finite);
    if (const auto* value = find("std")) info.standard_deviation = channels("std", *value, is_positive);
    if (info.mean.size() != info.standard_deviation.size()) {
      throw EnvironmentError(text("The metadata of '", path_, "' has a 'mean' of ", info.mean.size(),
                                  " channels and a 'std' of ", info.standard_deviation.size(),
                                  ". Write both for the model's input channels."));
    }
    return info;
  }

 private:
  const std::string* find(const std::string& key) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? nullptr : &found->second;
  }

  std::vector<std::string> names(const char* key, const std::string& value) const {
    const auto json = Json::parse(value, nullptr, false);
    const auto is_string = [](const Json& element) { return element.is_string(); };
    if (!json.is_array() || json.empty() || !std::ranges::all_of(json, is_string)) {
      refuse(key, value, R"(no JSON list of strings, such as ["cat", "dog"])");
    }
    return json.get<std::vector<std::string>>();
  }

  int side(const char* key, const std::string& value, int minimum) const {
    const auto number = parse_integer(value, minimum, kLongestSide);
    if (!number) refuse(key, value, text("no whole number from ", minimum, " to ", kLongestSide));
    return static_cast<int>(*number);
  }

  std::vector<double> channels(const char* key, const std::string& value,
                               const std::function<bool(double)>& is_right) const {
    const auto json = Json::parse(value, nullptr, false);
    const auto is_number = [](const Json& element) { return element.is_number(); };
    if (json.is_array() && std::ranges::all_of(json, is_number)) {
      auto numbers = json.get<std::vector<double>>();
      if (are_channels(numbers, is_right)) return numbers;
    }
    refuse(key, value, "no JSON list of 1 or 3 numbers in range, such as [0.5, 0.5, 0.5]");
  }

  [[noreturn]] void refuse(const char* key, const std::string& value, const std::string& what) const {
    constexpr std::size_t kShown = 100;
    throw EnvironmentError(text("The metadata of '", path_, "' has '", key, "' = '", value.substr(0, kShown),
                                value.size() > kShown ? "...'" : "'", ", which is ", what,
                                ". Write the file again with a correct value."));
  }

  const Metadata& metadata_;
  const std::string& path_;
};

}  // namespace

Metadata classifier_metadata(const ClassifierInfo& info) {
  check(info);
  Metadata metadata{{"format", "pt"},
                    {"image_side", text(info.image_side)},
                    {"short_side", text(info.short_side)},
                    {"mean", Json(info.mean).dump()},
                    {"std", Json(info.standard_deviation).dump()}};
  to_json(info.model, "the model");
  if (!info.model.empty()) metadata.emplace("model", info.model);
  if (!info.classes.empty()) metadata.emplace("classes", to_json(info.classes, "a class"));
  return metadata;
}

ClassifierInfo read_classifier_info(const Metadata& metadata, const std::string& path) {
  return InfoReader{metadata, path}.read();
}

ClassifierInfo read_classifier_info(const std::string& path) {
  if (detail::weights_format(path) == detail::WeightsFormat::pth) return {};
  return read_classifier_info(SafetensorsFile{path}.metadata(), path);
}

}  // namespace libtrain
