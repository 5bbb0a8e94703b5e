#include <libtrain/checkpoint/detector_info.hpp>

#include <algorithm>
#include <cmath>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/metadata_values.hpp>
#include <libtrain/checkpoint/detail/weights_format.hpp>
#include <libtrain/checkpoint/safetensors.hpp>

namespace libtrain {

namespace {

constexpr int kLargestSize = 65535;       // pixels of a JPEG
constexpr double kLargestId = 1LL << 53;  // as numbers in JSON

bool are_ids(const std::vector<double>& numbers) {
  return std::ranges::all_of(numbers, [](double id) { return std::abs(id) <= kLargestId && id == std::trunc(id); });
}

}  // namespace

std::map<std::string, std::string> detector_metadata(const DetectorInfo& info) {
  if (info.min_size < 1 || info.min_size > info.max_size || info.max_size > kLargestSize) {
    throw UsageError(text("DetectorInfo has a min_size of ", info.min_size, " and a max_size of ", info.max_size,
                          ". Set them to 1 <= min_size <= max_size <= ", kLargestSize, "."));
  }
  if (info.classes.size() != info.category_ids.size()) {
    throw UsageError(text("DetectorInfo has ", info.classes.size(), " classes and ", info.category_ids.size(),
                          " category_ids. Give one for each class."));
  }
  std::map<std::string, std::string> metadata{{"format", "pt"},
                                              {"min_size", text(info.min_size)},
                                              {"max_size", text(info.max_size)},
                                              {"norm", info.frozen_batch_norm ? "frozen" : "batch"},
                                              {"norm_epsilon", detail::numbers_to_json({info.norm_epsilon})}};
  detail::names_to_json({info.model}, "the model");
  if (!info.model.empty()) metadata.emplace("model", info.model);
  if (info.classes.empty()) return metadata;
  metadata.emplace("classes", detail::names_to_json(info.classes, "a class"));
  metadata.emplace("category_ids", text("[", join(info.category_ids, ","), "]"));
  return metadata;
}

DetectorInfo read_detector_info(const std::string& path) {
  if (detail::weights_format(path) == detail::WeightsFormat::pth) return {};
  const auto metadata = SafetensorsFile{path}.metadata();
  const detail::MetadataValues values{metadata, path};
  DetectorInfo info;
  if (const auto* value = values.find("model")) info.model = *value;
  if (const auto* value = values.find("classes")) info.classes = values.names("classes", *value);
  if (const auto* value = values.find("category_ids")) {
    const auto is_right = [&](const std::vector<double>& numbers) {
      return numbers.size() == info.classes.size() && are_ids(numbers);
    };
    for (const double id : values.numbers("category_ids", *value, is_right, "whole numbers, one for each class")) {
      info.category_ids.push_back(static_cast<std::int64_t>(id));
    }
  }
  if (const auto* value = values.find("min_size")) {
    info.min_size = static_cast<int>(values.integer("min_size", *value, 1, kLargestSize));
  }
  if (const auto* value = values.find("max_size")) {
    info.max_size = static_cast<int>(values.integer("max_size", *value, info.min_size, kLargestSize));
  }
  if (const auto* value = values.find("norm")) {
    if (*value != "frozen" && *value != "batch") values.refuse("norm", *value, "neither frozen nor batch");
    info.frozen_batch_norm = *value == "frozen";
  }
  if (const auto* value = values.find("norm_epsilon")) {
    const auto is_right = [](const std::vector<double>& numbers) {
      return numbers.size() == 1 && numbers.front() >= 0 && numbers.front() <= 1;
    };
    info.norm_epsilon = values.numbers("norm_epsilon", *value, is_right, "one number from 0 to 1").front();
  }
  return info;
}

}  // namespace libtrain
