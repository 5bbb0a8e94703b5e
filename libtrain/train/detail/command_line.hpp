#pragma once

#include <optional>
#include <string>

#include <libtrain/base/environment.hpp>
#include <libtrain/comm/device_choice.hpp>
#include <libtrain/launch/launch.hpp>
#include <libtrain/train/context.hpp>
#include <libtrain/train/program.hpp>

namespace libtrain::detail {

/// The parsed command line.
struct CommandLine {
  RunOptions run;
  LaunchOptions launch;
  std::string timeline;  ///< empty: no timeline
  std::string config;    ///< file of options; empty: none
  DeviceChoice device = DeviceChoice::automatic;
  double timeout_s = 300;
  std::optional<double> connect_timeout_s;
  std::optional<int> threads;
  std::optional<std::string> help;  ///< the text to print instead of running
};

/// Describes a range for messages: "a number from 0.1 to 604800", or "a finite number" for a range without bounds.
std::string number_between(double minimum, double maximum);

/// Reads the command line and, with `--config FILE`, that file; the command line wins. Throws UsageError for arguments
/// and names or values in the file that it cannot parse, and what read_config_file() throws.
CommandLine parse_command_line(int argc, const char* const* argv, const Program& program);

}  // namespace libtrain::detail
