#pragma once

#include <optional>
#include <string>
#include <vector>

namespace libtrain {

/// One `--name VALUE` of a program.
struct Option {
  std::string name;  ///< without the dashes: "batch-size"
  std::string help;
  std::optional<std::string> value = std::nullopt;  ///< the default; without one, Context::option demands the option
};

/// What a program tells `--help` and the parser. Without options any `--name VALUE` is taken, so that a first program
/// need not declare them; with options anything else on the command line is an error.
struct Program {
  std::string description;
  std::vector<Option> options = {};
};

}  // namespace libtrain
