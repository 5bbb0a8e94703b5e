#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <libtrain/launch/launch.hpp>
#include <libtrain/train/context.hpp>
#include <libtrain/train/program.hpp>

namespace libtrain::detail {

/// The command line, read.
struct CommandLine {
  RunOptions run;
  LaunchOptions launch;
  std::string timeline;  ///< empty: none
  std::string device = "auto";
  double timeout_s = 300;
  std::optional<double> connect_timeout_s;
  std::optional<int> threads;
  std::optional<std::string> help;  ///< the text to print instead of running
};

/// `word` as a decimal number in [minimum, maximum], which are finite: no blanks, no plus, no 0x, no leading 0 that
/// makes it octal, no nan.
template <typename Number>
std::optional<Number> parse_decimal(std::string_view word, Number minimum, Number maximum) {
  Number number{};
  const auto* end = word.data() + word.size();
  const auto [rest, failure] = std::from_chars(word.data(), end, number);
  const bool is_within = number >= minimum && number <= maximum;
  return failure == std::errc{} && rest == end && is_within ? std::optional{number} : std::nullopt;
}

/// What that takes, in words: "a number from 0.1 to 604800". Of a range without a bound: "a finite number".
std::string number_between(double minimum, double maximum);

/// Throws UsageError in one sentence for what it cannot read.
CommandLine parse_command_line(int argc, const char* const* argv, const Program& program);

}  // namespace libtrain::detail
