#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <libtrain/launch/launch.hpp>

namespace libtrain::detail {

inline constexpr int kMaxWorldSize = 1 << 20;

/// The values that the variables of one launcher give for this process.
struct LauncherVariables {
  Launcher launcher = Launcher::single;
  std::optional<Sourced<int>> rank = {};
  std::optional<Sourced<int>> world_size = {};
  std::optional<Sourced<int>> local_rank = {};
  std::optional<Sourced<int>> local_world_size = {};
  std::optional<Sourced<int>> node_rank = {};
  std::optional<Sourced<int>> node_count = {};
  /// The names of these two variables in messages.
  std::string rank_name = {};
  std::string world_size_name = {};

  bool is_complete() const { return rank && world_size; }
  bool is_multi_process() const { return world_size && world_size->value > 1; }
};

/// The variables of a launcher whose values are plain numbers; empty if it has no such variable.
struct VariableNames {
  Launcher launcher;
  std::string_view rank;
  std::string_view world_size;
  std::string_view local_rank = {};
  std::string_view local_world_size = {};
  std::string_view node_rank = {};
  std::string_view node_count = {};
};

/// Reads them; std::nullopt if neither rank nor world size is set. Throws EnvironmentError for invalid values.
std::optional<LauncherVariables> read_variables(const Environment& environment, const VariableNames& names);

/// The variable `name` as a whole number and its source; std::nullopt if it is unset or empty.
/// Throws EnvironmentError, with control characters escaped, for anything else.
std::optional<Sourced<int>> read_integer(const Environment& environment, std::string_view name, int minimum,
                                         int maximum);

/// read_integer in the range of ranks, and of counts.
std::optional<Sourced<int>> read_rank(const Environment& environment, std::string_view name);
std::optional<Sourced<int>> read_count(const Environment& environment, std::string_view name);

/// The first of two that is set.
template <typename T>
std::optional<T> first_of(std::optional<T> first, std::optional<T> second) {
  return first ? first : second;
}

/// True unless the two name different ranks or different world sizes.
bool agree(const LauncherVariables& a, const LauncherVariables& b);

/// "RANK=3, WORLD_SIZE=8": what is set of rank and world size.
std::string to_text(const LauncherVariables& found);

/// `value` in single quotes, at most 120 characters of it, control characters as \xNN.
std::string in_quotes(std::string_view value);

}  // namespace libtrain::detail
