#include <libtrain/observe/progress_line.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>

#include <libtrain/base/text.hpp>

namespace libtrain {
namespace {

constexpr std::size_t kMaxBarWidth = 30;
constexpr std::size_t kMinBarWidth = 5;

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

// One column per character: figure names may be UTF-8.
std::size_t width_of(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return !continues_character(c); }));
}

std::string cut_to(const std::string& line, std::size_t columns) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (!continues_character(line[i]) && ++width > columns) return line.substr(0, i);
  }
  return line;
}

std::string epoch_of(const ProgressState& state) {
  return state.epochs > 0 ? text("epoch ", state.epoch, "/", state.epochs) : text("epoch ", state.epoch);
}

std::string after_bar(const ProgressState& state) {
  std::string line = state.steps > 0 ? text(state.step, "/", state.steps) : text(state.step, " steps");
  for (const auto& figure : state.figures) line += text(" ", format_figure(figure.value), " ", figure.name);
  if (state.steps > 0 && state.eta_s >= 0) line += " eta " + format_duration(state.eta_s);
  return line;
}

std::string bar_of(const ProgressState& state, std::size_t width) {
  const double share = static_cast<double>(state.step) / static_cast<double>(state.steps);
  const auto filled = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(width));
  return "[" + std::string(filled, '#') + std::string(width - filled, '.') + "]";
}

}  // namespace

std::string progress_bar_line(const ProgressState& state, int columns) {
  const auto room = static_cast<std::size_t>(std::max(columns, 0));
  const std::string head = epoch_of(state) + " ";
  const std::string tail = after_bar(state);
  const std::size_t taken = width_of(head) + width_of(tail) + 3;  // two brackets and a space
  if (state.steps <= 0 || taken + kMinBarWidth > room) return cut_to(head + tail, room);
  return head + bar_of(state, std::min(kMaxBarWidth, room - taken)) + " " + tail;
}

std::string progress_plain_line(const ProgressState& state) {
  return epoch_of(state) + " " + after_bar(state);
}

std::string progress_end_line(const ProgressState& state, double elapsed_s) {
  std::string line = text(epoch_of(state), " done: ", state.step, " steps in ", format_duration(elapsed_s));
  for (const auto& figure : state.figures) line += text(", ", format_figure(figure.value), " ", figure.name);
  return line;
}

std::string format_duration(double seconds) {
  if (!(seconds < 1e9)) return "?";  // NaN, or an estimate of decades after a first step that hung
  const auto total = static_cast<std::int64_t>(std::llround(std::max(seconds, 0.0)));
  const auto two_digits = [](std::int64_t number) { return text(number < 10 ? "0" : "", number); };
  const auto minutes_and_seconds = ":" + two_digits(total % 60);
  if (total < 3600) return text(total / 60, minutes_and_seconds);
  return text(total / 3600, ":", two_digits(total / 60 % 60), minutes_and_seconds);
}

std::string format_figure(double value) {
  char digits[32];
  const bool is_long = std::abs(value) >= 999.5 && std::abs(value) < 1e9;  // with three digits, 999.5 is 1e+03
  // Not printf, whose decimal point depends on the locale.
  const auto result = is_long ? std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed, 0)
                              : std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general, 3);
  return std::string(digits, result.ptr);
}

}  // namespace libtrain
