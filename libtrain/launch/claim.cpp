#include <libtrain/launch/claim.hpp>

#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

std::string quoted(std::string_view value) {
  constexpr std::size_t longest = 120;
  constexpr std::string_view digits = "0123456789abcdef";
  std::string result = "'";
  for (const char c : value.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      result += c;
    } else {
      result.append("\\x").append({digits[byte >> 4U], digits[byte & 15U]});
    }
  }
  return result + (value.size() > longest ? "...'" : "'");
}

std::optional<Sourced<int>> read_integer(const Environment& environment, std::string_view name, int minimum,
                                         int maximum) {
  const auto value = name.empty() ? std::nullopt : environment.get(name);
  if (!value) return std::nullopt;
  const auto number = parse_integer(*value, minimum, maximum);
  if (!number) {
    throw EnvironmentError(text(name, " is ", quoted(*value), ", which is not a whole number from ", minimum, " to ",
                                maximum, ": correct it, or unset it."));
  }
  return Sourced<int>{static_cast<int>(*number), std::string{name}};
}

std::optional<Sourced<int>> read_rank(const Environment& environment, std::string_view name) {
  return read_integer(environment, name, 0, kLargestWorldSize - 1);
}

std::optional<Sourced<int>> read_count(const Environment& environment, std::string_view name) {
  return read_integer(environment, name, 1, kLargestWorldSize);
}

std::optional<Claim> read_claim(const Environment& environment, const VariableNames& names) {
  if (!environment.has(names.rank) && !environment.has(names.world_size)) return std::nullopt;
  Claim claim{.launcher = names.launcher};
  claim.rank = read_rank(environment, names.rank);
  claim.world_size = read_count(environment, names.world_size);
  claim.local_rank = read_rank(environment, names.local_rank);
  claim.local_world_size = read_count(environment, names.local_world_size);
  claim.node_rank = read_rank(environment, names.node_rank);
  claim.node_count = read_count(environment, names.node_count);
  claim.rank_name = names.rank;
  claim.world_size_name = names.world_size;
  return claim;
}

bool agree(const Claim& a, const Claim& b) {
  const bool same_rank = !a.rank || !b.rank || a.rank->value == b.rank->value;
  const bool same_size = !a.world_size || !b.world_size || a.world_size->value == b.world_size->value;
  return same_rank && same_size;
}

std::string to_text(const Claim& claim) {
  std::vector<std::string> parts;
  if (claim.rank) parts.push_back(text(claim.rank->source, "=", claim.rank->value));
  if (claim.world_size) parts.push_back(text(claim.world_size->source, "=", claim.world_size->value));
  return join(parts, ", ");
}

}  // namespace libtrain::detail
