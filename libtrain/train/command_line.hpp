#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include <libtrain/launch/launch.hpp>
#include <libtrain/train/data_access.hpp>
#include <libtrain/train/program.hpp>

namespace libtrain::detail {

/// The command line, read: what every program takes, and the program's own options as text.
struct CommandLine {
  LaunchOptions launch;
  std::string output = "outputs";
  std::string timeline;  ///< empty: none
  std::string device = "auto";
  double timeout_s = 300;
  std::optional<int> threads;
  std::uint64_t seed = 0;
  DataAccess data;
  bool quiet = false;
  std::map<std::string, std::string> options;
  bool declared = false;            ///< the program declared its options
  std::optional<std::string> help;  ///< the text to print instead of running
};

/// Throws UsageError in one sentence for what it cannot read.
CommandLine parse_command_line(int argc, const char* const* argv, const Program& program);

}  // namespace libtrain::detail
