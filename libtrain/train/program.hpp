#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace libtrain {

/// One `--name VALUE` of a program, or one flag: `--name` alone means `--name true`.
struct Option {
  std::string name;  ///< without the dashes: "batch-size"
  std::string help;
  std::optional<std::string> value = std::nullopt;  ///< the default; without one the option is required
  bool may_change = false;  ///< a resumed run may have another value, such as a path or a number of threads
  bool flag = false;        ///< true or false, by default false: see Context::flag()
};

/// Values for several options, which `--recipe NAME` selects: they replace the defaults, and the command line and
/// `--config FILE` replace them.
struct Recipe {
  std::string name;
  std::string help;                           ///< such as the paper that it is from
  std::map<std::string, std::string> values;  ///< by the name of the option, without the dashes
};

/// A program's description and options, for `--help` and the parser. Without options any `--name VALUE` is accepted, so
/// that a first program need not declare them; with options anything else on the command line is an error.
struct Program {
  std::string description;
  std::vector<Option> options = {};
  std::vector<Recipe> recipes =
      {};  ///< if there are some, the program has the option `--recipe`; the first is its default
};

}  // namespace libtrain
