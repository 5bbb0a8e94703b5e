#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace libtrain::detail {

/// The JSON text of a list of names. Throws UsageError for one that is not UTF-8; `what` it is a name of.
std::string names_to_json(const std::vector<std::string>& names, std::string_view what);

/// The JSON text of a list of numbers.
std::string numbers_to_json(const std::vector<double>& numbers);

/// Reads values of the metadata of one file of weights, which refuse() names.
class MetadataValues {
 public:
  MetadataValues(const std::map<std::string, std::string>& metadata, const std::string& path)
      : metadata_(metadata), path_(path) {}

  /// Null if there is none.
  const std::string* find(const std::string& key) const;

  /// A list of at least one string.
  std::vector<std::string> names(const char* key, const std::string& value) const;

  std::int64_t integer(const char* key, const std::string& value, std::int64_t minimum, std::int64_t maximum) const;

  /// A list of numbers that `is_right`; `expected` says what it must be.
  std::vector<double> numbers(const char* key, const std::string& value,
                              const std::function<bool(const std::vector<double>&)>& is_right,
                              const char* expected) const;

  /// Throws EnvironmentError: the value is `what`.
  [[noreturn]] void refuse(const char* key, const std::string& value, const std::string& what) const;

  const std::string& path() const { return path_; }

 private:
  const std::map<std::string, std::string>& metadata_;
  const std::string& path_;
};

}  // namespace libtrain::detail
