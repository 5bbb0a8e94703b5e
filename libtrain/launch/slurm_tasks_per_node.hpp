#pragma once

#include <string_view>
#include <vector>

namespace libtrain {

/// Expands Slurm's SLURM_TASKS_PER_NODE: "8(x4),2" is {8, 8, 8, 8, 2}.
/// Throws EnvironmentError that shows the text for anything malformed and for more than 65 536 nodes.
std::vector<int> parse_slurm_tasks_per_node(std::string_view list);

}  // namespace libtrain
