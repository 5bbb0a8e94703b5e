#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace libtrain::detail {

/// A value of a JSON file, with the way to it for messages: 'model.vocab'. The functions throw EnvironmentError, with
/// the file and the way, for a value of another type, and for one that is missing.
class JsonPlace {
 public:
  JsonPlace(const nlohmann::json& value, const std::string& file, std::string way = {})
      : value_(value), file_(file), way_(std::move(way)) {}

  const nlohmann::json& value() const { return value_; }
  bool is_null() const { return value_.is_null(); }

  /// Refuses what is not an object, and one with other members than `known`.
  void require_members(std::initializer_list<std::string_view> known) const;

  bool has(const std::string& name) const { return value_.is_object() && value_.contains(name); }
  JsonPlace member(const std::string& name) const;

  /// The elements of an array.
  std::size_t size() const;
  JsonPlace element(std::size_t index) const;

  std::string string() const;
  bool flag() const;
  std::uint64_t integer(std::uint64_t below) const;

  /// Throws: the value is not what `expected` says.
  [[noreturn]] void refuse(std::string_view expected, std::string_view advice) const;

 private:
  const nlohmann::json& value_;
  const std::string& file_;
  std::string way_;
};

}  // namespace libtrain::detail
