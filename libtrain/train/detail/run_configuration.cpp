#include <libtrain/train/detail/run_configuration.hpp>

#include <nlohmann/json.hpp>

#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

using Json = nlohmann::json;

}  // namespace

std::string to_json(const RunConfiguration& configuration) {
  RunConfiguration masked;
  for (const auto& [name, value] : configuration) masked.emplace(name, redact_value(name, value));
  return Json(masked).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<std::string> differences(const RunConfiguration& configuration, std::string_view json) {
  RunConfiguration former;
  RunConfiguration now;  // as it would be stored
  try {
    former = Json::parse(json).get<RunConfiguration>();
    now = Json::parse(to_json(configuration)).get<RunConfiguration>();
  } catch (const Json::exception& error) {
    throw EnvironmentError(text("The configuration in a checkpoint cannot be read: ", error.what()));
  }
  std::vector<std::string> found;
  for (const auto& [name, value] : now) {
    const auto was = former.find(name);
    if (was == former.end()) {
      found.push_back(text(name, " is ", value, " and was not there"));
    } else if (was->second != value) {
      found.push_back(text(name, " is ", value, " and was ", was->second));
    }
  }
  for (const auto& [name, value] : former) {
    if (!now.contains(name)) found.push_back(text(name, " is not there and was ", value));
  }
  return found;
}

}  // namespace libtrain::detail
