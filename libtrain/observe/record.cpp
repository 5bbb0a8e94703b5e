#include <libtrain/observe/record.hpp>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {
namespace {

using Json = nlohmann::ordered_json;

// Replaces invalid UTF-8: a file name in another encoding must not cost the record.
std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename Element>
std::string dump_all(const std::vector<Element>& values) {
  Json array = Json::array();
  for (const auto& value : values) array.push_back(value);
  return dump(array);
}

}  // namespace

Record::Record(std::string_view event) : event_(event) {
  if (event.empty()) throw UsageError("The event name of a metrics record is empty. Give it a name such as 'step'.");
}

Record& Record::set(std::string_view key, bool value) {
  return set_json(key, value ? "true" : "false");
}

Record& Record::set(std::string_view key, double value) {
  return set_json(key, dump(Json(value)), std::isfinite(value));
}

Record& Record::set(std::string_view key, std::string_view value) {
  return set_json(key, dump(Json(detail::redact_value(key, value))));
}

Record& Record::set(std::string_view key, std::nullptr_t) {
  return set_json(key, "null");
}

Record& Record::set(std::string_view key, const std::vector<double>& values) {
  return set_json(key, dump_all(values));
}

Record& Record::set(std::string_view key, const std::vector<std::int64_t>& values) {
  return set_json(key, dump_all(values));
}

Record& Record::set(std::string_view key, const std::vector<std::string>& values) {
  Json array = Json::array();
  for (const auto& value : values) array.push_back(detail::redact_value(key, value));
  return set_json(key, dump(array));
}

Record& Record::set(std::string_view key, const std::vector<std::pair<std::string, std::string>>& members) {
  Json object = Json::object();
  for (const auto& [name, value] : members) object[name] = detail::redact_value(name, value);
  return set_json(key, dump(object));
}

Record& Record::set(std::string_view key, const Record& object) {
  return set_json(key, "{" + object.members_as_json() + "}", object.non_finite().empty());
}

Record& Record::set_signed(std::string_view key, std::int64_t value) {
  return set_json(key, dump(Json(value)));
}

Record& Record::set_unsigned(std::string_view key, std::uint64_t value) {
  return set_json(key, dump(Json(value)));
}

Record& Record::set_json(std::string_view key, std::string json, bool is_finite) {
  if (key.empty() || key == "event" || key == "time" || key == "run_id") {
    throw UsageError(
        text("'", key, "' cannot be a key of a metrics record. Use a name other than event, time and run_id."));
  }
  const auto found = std::ranges::find(members_, key, &Member::key);
  if (found != members_.end()) {
    *found = {found->key, std::move(json), is_finite};
  } else {
    members_.push_back({std::string{key}, std::move(json), is_finite});
  }
  return *this;
}

std::vector<std::string> Record::non_finite() const {
  std::vector<std::string> keys;
  for (const auto& member : members_) {
    if (!member.is_finite) keys.push_back(member.key);
  }
  return keys;
}

std::string Record::members_as_json() const {
  std::vector<std::string> members;
  for (const auto& member : members_) members.push_back(dump(Json(member.key)) + ":" + member.json);
  return join(members, ",");
}

std::string Record::line(double time_s, std::string_view run_id) const {
  auto head = "{\"event\":" + dump(Json(event_)) + ",\"time\":" + dump(Json(time_s));
  if (!run_id.empty()) head += ",\"run_id\":" + dump(Json(run_id));
  return head + (members_.empty() ? "" : ",") + members_as_json() + "}\n";
}

}  // namespace libtrain
