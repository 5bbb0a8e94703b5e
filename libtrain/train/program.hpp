#pragma once

#include <optional>
#include <string>
#include <vector>

namespace libtrain {

/// One `--name VALUE` of a program.
struct Option {
  std::string name;  ///< without the dashes: "batch-size"
  std::string help;
  std::optional<std::string> value = std::nullopt;  ///< the default; without one the option is required
  bool may_change = false;  ///< a resumed run may have another value, such as a path or a number of threads
};

/// A program's description and options, for `--help` and the parser. Without options any `--name VALUE` is accepted, so
/// that a first program need not declare them; with options anything else on the command line is an error.
struct Program {
  std::string description;
  std::vector<Option> options = {};
};

}  // namespace libtrain
