#include <libtrain/checkpoint/detail/metadata_values.hpp>

#include <algorithm>
#include <cstddef>

#include <nlohmann/json.hpp>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

using Json = nlohmann::json;

std::string names_to_json(const std::vector<std::string>& names, std::string_view what) {
  const Json value = names;
  try {
    return value.dump();
  } catch (const Json::exception&) {
    throw UsageError(text("A name of ", what, " is not UTF-8: ",
                          value.dump(-1, ' ', false, Json::error_handler_t::replace), ". Rename it."));
  }
}

std::string numbers_to_json(const std::vector<double>& numbers) {
  return Json(numbers).dump();
}

const std::string* MetadataValues::find(const std::string& key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

std::vector<std::string> MetadataValues::names(const char* key, const std::string& value) const {
  const auto json = Json::parse(value, nullptr, false);
  const auto is_string = [](const Json& element) { return element.is_string(); };
  if (!json.is_array() || json.empty() || !std::ranges::all_of(json, is_string)) {
    refuse(key, value, R"(no JSON list of strings, such as ["cat", "dog"])");
  }
  return json.get<std::vector<std::string>>();
}

std::int64_t MetadataValues::integer(const char* key, const std::string& value, std::int64_t minimum,
                                     std::int64_t maximum) const {
  const auto number = parse_integer(value, minimum, maximum);
  if (!number) refuse(key, value, text("no whole number from ", minimum, " to ", maximum));
  return *number;
}

std::vector<double> MetadataValues::numbers(const char* key, const std::string& value,
                                            const std::function<bool(const std::vector<double>&)>& is_right,
                                            const char* expected) const {
  const auto json = Json::parse(value, nullptr, false);
  const auto is_number = [](const Json& element) { return element.is_number(); };
  if (json.is_array() && std::ranges::all_of(json, is_number)) {
    auto numbers = json.get<std::vector<double>>();
    if (is_right(numbers)) return numbers;
  }
  refuse(key, value, text("no JSON list of ", expected));
}

void MetadataValues::refuse(const char* key, const std::string& value, const std::string& what) const {
  constexpr std::size_t kShown = 100;
  throw EnvironmentError(text("The metadata of '", path_, "' has '", key, "' = '", value.substr(0, kShown),
                              value.size() > kShown ? "...'" : "'", ", which is ", what,
                              ". Write the file again with a correct value."));
}

}  // namespace libtrain::detail
