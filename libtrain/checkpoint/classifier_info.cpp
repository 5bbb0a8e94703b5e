#include <libtrain/checkpoint/classifier_info.hpp>

#include <algorithm>
#include <cmath>
#include <functional>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/metadata_values.hpp>
#include <libtrain/checkpoint/detail/weights_format.hpp>
#include <libtrain/checkpoint/safetensors.hpp>

namespace libtrain {

namespace {

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

}  // namespace

Metadata classifier_metadata(const ClassifierInfo& info) {
  check(info);
  Metadata metadata{{"format", "pt"},
                    {"image_side", text(info.image_side)},
                    {"short_side", text(info.short_side)},
                    {"mean", detail::numbers_to_json(info.mean)},
                    {"std", detail::numbers_to_json(info.standard_deviation)}};
  detail::names_to_json({info.model}, "the model");
  if (!info.model.empty()) metadata.emplace("model", info.model);
  if (!info.classes.empty()) metadata.emplace("classes", detail::names_to_json(info.classes, "a class"));
  return metadata;
}

ClassifierInfo read_classifier_info(const Metadata& metadata, const std::string& path) {
  const detail::MetadataValues values{metadata, path};
  const auto side = [&](const char* key, const std::string& value, int minimum) {
    return static_cast<int>(values.integer(key, value, minimum, kLongestSide));
  };
  const auto channels = [&](const char* key, const std::string& value, const std::function<bool(double)>& is_right) {
    return values.numbers(
        key, value, [&](const std::vector<double>& numbers) { return are_channels(numbers, is_right); },
        "1 or 3 numbers in range, such as [0.5, 0.5, 0.5]");
  };
  ClassifierInfo info;
  if (const auto* value = values.find("model")) info.model = *value;
  if (const auto* value = values.find("classes")) info.classes = values.names("classes", *value);
  if (const auto* value = values.find("image_side")) info.image_side = side("image_side", *value, 1);
  if (const auto* value = values.find("short_side")) info.short_side = side("short_side", *value, info.image_side);
  if (info.short_side < info.image_side) {
    values.refuse("image_side", *values.find("image_side"),
                  text("more than the short_side, which is ", info.short_side));
  }
  if (const auto* value = values.find("mean")) info.mean = channels("mean", *value, is_finite);
  if (const auto* value = values.find("std")) info.standard_deviation = channels("std", *value, is_positive);
  if (info.mean.size() != info.standard_deviation.size()) {
    throw EnvironmentError(text("The metadata of '", path, "' has a 'mean' of ", info.mean.size(),
                                " channels and a 'std' of ", info.standard_deviation.size(),
                                ". Write both for the model's input channels."));
  }
  return info;
}

ClassifierInfo read_classifier_info(const std::string& path) {
  if (detail::weights_format(path) == detail::WeightsFormat::pth) return {};
  return read_classifier_info(SafetensorsFile{path}.metadata(), path);
}

}  // namespace libtrain
