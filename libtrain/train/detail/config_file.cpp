#include <libtrain/train/detail/config_file.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

// Far more than any list of options; without a limit a mistaken --config /dev/zero would use all memory.
constexpr std::size_t kLargestConfigFile = std::size_t{1} << 20;

std::string content_of(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string content(kLargestConfigFile + 1, '\0');
  if (file) file.read(content.data(), static_cast<std::streamsize>(content.size()));
  // A folder can be opened; reading it fails.
  if (!file.is_open() || file.bad()) {
    throw EnvironmentError(
        text("Cannot read configuration file '", path, "': ", std::strerror(errno), ". Check the path in --config."));
  }
  content.resize(static_cast<std::size_t>(file.gcount()));
  if (content.size() > kLargestConfigFile) {
    throw UsageError(text("Configuration file '", path, "' is larger than 1 MiB. Give --config a file of options."));
  }
  return content;
}

// A SAX handler, because a parsed document no longer has the digits of its numbers, nor keys that occur twice.
class ConfigReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  ConfigReader(const std::string& path, std::string_view content) : path_(path), content_(content) {}

  std::map<std::string, ConfigValue> take_values() { return std::move(values_); }

  bool null() override { refuse("null"); }
  bool boolean(bool value) override { return set(value); }
  bool number_integer(number_integer_t value) override { return set(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return set(std::to_string(value)); }
  bool number_float(number_float_t /*value*/, const string_t& digits) override { return set(digits); }

  bool string(string_t& value) override {
    if (value.find('\0') != std::string::npos) refuse("a string with a NUL");
    return set(value);
  }

  bool binary(binary_t& /*value*/) override { refuse("binary data"); }

  bool start_object(std::size_t /*elements*/) override {
    if (is_in_object_) refuse("an object");
    is_in_object_ = true;
    return true;
  }

  bool key(string_t& key) override {
    if (values_.contains(key)) {
      throw UsageError(text("Configuration file '", path_, "' gives '", key, "' twice. Remove one of them."));
    }
    key_ = key;
    return true;
  }

  bool end_object() override { return true; }
  bool start_array(std::size_t /*elements*/) override { refuse("an array"); }
  bool end_array() override { return true; }

  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    if (dynamic_cast<const nlohmann::detail::out_of_range*>(&error)) refuse(last_token);
    // `position` counts the byte that cannot be parsed, which may be a line's end.
    const auto before = content_.substr(0, position > 0 ? position - 1 : 0);
    const auto line = 1 + std::ranges::count(before, '\n');
    const auto column = before.size() - (before.rfind('\n') + 1) + 1;
    throw UsageError(text("Configuration file '", path_, "' is not valid JSON at line ", line, ", column ", column,
                          ". Check the commas, quotes and braces there."));
  }

 private:
  [[noreturn]] void refuse(const std::string& value) const {
    if (!is_in_object_) {
      throw UsageError(
          text("Configuration file '", path_, "' is not a JSON object. Write options as {\"epochs\": 3}."));
    }
    throw UsageError(text("Configuration file '", path_, "' gives '", key_, "' the value ", value,
                          ". Write a string, a finite number, true or false."));
  }

  bool set(ConfigValue value) {
    if (!is_in_object_) refuse({});
    values_.emplace(key_, std::move(value));
    return true;
  }

  const std::string& path_;
  std::string_view content_;
  std::map<std::string, ConfigValue> values_;
  std::string key_;
  bool is_in_object_ = false;
};

}  // namespace

std::map<std::string, ConfigValue> read_config_file(const std::string& path) {
  const auto content = content_of(path);
  ConfigReader reader(path, content);
  nlohmann::json::sax_parse(content, &reader);
  return reader.take_values();
}

}  // namespace libtrain::detail
