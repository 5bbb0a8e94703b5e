#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/launch/families.hpp>

namespace libtrain::detail {
namespace {

std::optional<Sourced<int>> checked(const std::optional<int>& value, const char* name, int minimum, int maximum) {
  if (!value) return std::nullopt;
  if (*value < minimum || *value > maximum) {
    throw UsageError(text(name, " ", *value, " is not a whole number from ", minimum, " to ", maximum, "."));
  }
  return Sourced<int>{*value, name};
}

}  // namespace

std::optional<Claim> read_explicit_options(const Environment& /*environment*/, const LaunchOptions& options) {
  Claim claim{.launcher = Launcher::explicit_options};
  claim.rank_name = "--rank";
  claim.world_size_name = "--world-size";
  claim.rank = checked(options.rank, "--rank", 0, kLargestWorldSize - 1);
  claim.world_size = checked(options.world_size, "--world-size", 1, kLargestWorldSize);
  claim.local_rank = checked(options.local_rank, "--local-rank", 0, kLargestWorldSize - 1);
  if (!claim.rank && !claim.world_size) return std::nullopt;
  return claim;
}

}  // namespace libtrain::detail
