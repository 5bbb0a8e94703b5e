#pragma once

#include <map>
#include <string>
#include <variant>

namespace libtrain::detail {

/// A value of a configuration file: true or false, or the text of a string or of a number, as it would be given on the
/// command line. Numbers are not rounded: they have the digits that the file has.
using ConfigValue = std::variant<bool, std::string>;

/// Reads a file of options: one JSON object whose keys are the names of options without their dashes, such as
/// {"batch-size": 32, "data": "az://pictures", "quiet": true}. Which names exist is for the caller to check.
///
/// Throws EnvironmentError if the file cannot be read; UsageError if it is not a JSON object of at most 1 MiB, gives a
/// key twice, or has a value that is null, an array, an object or a string with a NUL.
std::map<std::string, ConfigValue> read_config_file(const std::string& path);

}  // namespace libtrain::detail
