#pragma once

#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include <libtrain/base/detail/printable.hpp>

namespace libtrain::checkpoint_tool {

/// Members stay in the order in which they are first set.
using Json = nlohmann::ordered_json;

enum class Style { text, json };

/// What a command prints: lines as it goes, or one JSON object on one line at the end.
class Report {
 public:
  explicit Report(Style style) : style_(style) {}

  /// Prints a line at once: a large checkpoint takes minutes. With JSON, nothing.
  void line(const std::string& text) const {
    if (style_ == Style::text) std::cout << detail::printable(text) << std::endl;
  }

  Json json = Json::object();

  /// Prints the object, if it is to be. Bytes that are not UTF-8 become U+FFFD.
  void finish() const {
    if (style_ == Style::json) std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  }

 private:
  Style style_;
};

}  // namespace libtrain::checkpoint_tool
