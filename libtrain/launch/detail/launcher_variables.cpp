#include <libtrain/launch/detail/launcher_variables.hpp>

#include <cstdint>
#include <vector>

#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

std::string in_quotes(std::string_view value) {
  constexpr std::size_t kMaxShown = 120;
  std::string result = "'";
  for (const char c : value.substr(0, kMaxShown)) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      result += c;
    } else {
      result += "\\x" + hexadecimal({&byte, 1});
    }
  }
  return result + (value.size() > kMaxShown ? "...'" : "'");
}

std::optional<Sourced<int>> read_integer(const Environment& environment, std::string_view name, int minimum,
                                         int maximum) {
  const auto value = name.empty() ? std::nullopt : environment.get(name);
  if (!value) return std::nullopt;
  const auto number = parse_integer(*value, minimum, maximum);
  if (!number) {
    throw EnvironmentError(text(name, " is ", in_quotes(*value), ", which is not a whole number from ", minimum, " to ",
                                maximum, ". Correct it, or unset it."));
  }
  return Sourced<int>{static_cast<int>(*number), std::string{name}};
}

std::optional<Sourced<int>> read_rank(const Environment& environment, std::string_view name) {
  return read_integer(environment, name, 0, kMaxWorldSize - 1);
}

std::optional<Sourced<int>> read_count(const Environment& environment, std::string_view name) {
  return read_integer(environment, name, 1, kMaxWorldSize);
}

std::optional<LauncherVariables> read_variables(const Environment& environment, const VariableNames& names) {
  if (!environment.has(names.rank) && !environment.has(names.world_size)) return std::nullopt;
  LauncherVariables found{.launcher = names.launcher};
  found.rank = read_rank(environment, names.rank);
  found.world_size = read_count(environment, names.world_size);
  found.local_rank = read_rank(environment, names.local_rank);
  found.local_world_size = read_count(environment, names.local_world_size);
  found.node_rank = read_rank(environment, names.node_rank);
  found.node_count = read_count(environment, names.node_count);
  found.rank_name = names.rank;
  found.world_size_name = names.world_size;
  return found;
}

bool agree(const LauncherVariables& a, const LauncherVariables& b) {
  const bool same_rank = !a.rank || !b.rank || a.rank->value == b.rank->value;
  const bool same_size = !a.world_size || !b.world_size || a.world_size->value == b.world_size->value;
  return same_rank && same_size;
}

std::string to_text(const LauncherVariables& found) {
  std::vector<std::string> parts;
  if (found.rank) parts.push_back(text(found.rank->source, "=", found.rank->value));
  if (found.world_size) parts.push_back(text(found.world_size->source, "=", found.world_size->value));
  return join(parts, ", ");
}

}  // namespace libtrain::detail
