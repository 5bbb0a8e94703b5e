#include <libtrain/text/detail/json_place.hpp>

#include <algorithm>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kWriteAgain = "Get the file again, or write it with tokenizers or libtrain-tokenizer.";

std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 60;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  std::string shown = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (shown.size() > kLongest) shown = shown.substr(0, kLongest) + "...";
  return shown;
}

}  // namespace

void JsonPlace::refuse(std::string_view expected, std::string_view advice) const {
  throw EnvironmentError(text("File '", file_, "': ", way_.empty() ? "the file" : "'" + way_ + "'", " is ",
                              shown(value_), ", expected ", expected, ". ", advice));
}

void JsonPlace::require_members(std::initializer_list<std::string_view> known) const {
  if (!value_.is_object()) refuse("an object", kWriteAgain);
  for (const auto& entry : value_.items()) {
    if (std::ranges::find(known, entry.key()) != known.end()) continue;
    member(entry.key())
        .refuse("no such member", "libtrain does not know what it asks for: remove it only if it changes nothing.");
  }
}

JsonPlace JsonPlace::member(const std::string& name) const {
  if (!value_.is_object()) refuse("an object", kWriteAgain);
  const auto found = value_.find(name);
  std::string way = way_.empty() ? name : way_ + "." + name;
  if (found != value_.end()) return {*found, file_, std::move(way)};
  throw EnvironmentError(text("File '", file_, "': '", way, "' is missing. ", kWriteAgain));
}

std::size_t JsonPlace::size() const {
  if (!value_.is_array()) refuse("a list", kWriteAgain);
  return value_.size();
}

JsonPlace JsonPlace::element(std::size_t index) const {
  return {value_.at(index), file_, text(way_, "[", index, "]")};
}

std::string JsonPlace::string() const {
  if (!value_.is_string()) refuse("a string", kWriteAgain);
  return value_.get<std::string>();
}

bool JsonPlace::flag() const {
  if (!value_.is_boolean()) refuse("true or false", kWriteAgain);
  return value_.get<bool>();
}

std::uint64_t JsonPlace::integer(std::uint64_t below) const {
  if (!value_.is_number_unsigned() || value_.get<std::uint64_t>() >= below) {
    refuse(text("a whole number below ", below), kWriteAgain);
  }
  return value_.get<std::uint64_t>();
}

}  // namespace libtrain::detail
