#include <libtrain/launch/slurm_tasks_per_node.hpp>

#include <algorithm>
#include <cstddef>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/launch/claim.hpp>

namespace libtrain {
namespace {

constexpr std::size_t kMostNodes = 65'536;

[[noreturn]] void refuse(std::string_view list, std::string_view why) {
  throw EnvironmentError(
      text("The Slurm list of tasks per node ", detail::quoted(list), " ", why, "; expected something like 8(x4),2."));
}

}  // namespace

std::vector<int> parse_slurm_tasks_per_node(std::string_view list) {
  std::vector<int> tasks;
  std::size_t start = 0;
  while (start <= list.size()) {
    const auto comma = std::min(list.find(',', start), list.size());
    auto item = list.substr(start, comma - start);
    long long repeat = 1;
    if (const auto bracket = item.find("(x"); bracket != std::string_view::npos) {
      const auto digits = item.substr(bracket + 2);
      const auto count = parse_integer(digits.substr(0, digits.size() - 1), 1, kMostNodes);
      if (!digits.ends_with(')') || !count) refuse(list, "has a repetition that is not (xN)");
      repeat = *count;
      item = item.substr(0, bracket);
    }
    const auto count = parse_integer(item, 0, detail::kLargestWorldSize);
    if (!count) refuse(list, "has an item that is not a number of tasks");
    if (tasks.size() + static_cast<std::size_t>(repeat) > kMostNodes) refuse(list, "names more than 65536 nodes");
    tasks.insert(tasks.end(), static_cast<std::size_t>(repeat), static_cast<int>(*count));
    start = comma + 1;
  }
  return tasks;
}

}  // namespace libtrain
