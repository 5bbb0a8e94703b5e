#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace libtrain::detail {

/// Expands Slurm's compressed host lists in order: "n[001-003,7],login" is {"n001", "n002", "n003", "n7", "login"}. A
/// name may have several brackets ("rack[0-1]n[0-3]") and text after them ("n[1-2]-ib"). Throws EnvironmentError that
/// shows the text if it is malformed, has characters that host names cannot have, or has more than 65 536 hosts.
std::vector<std::string> parse_slurm_node_list(std::string_view list);

/// Expands Slurm's SLURM_TASKS_PER_NODE: "8(x4),2" is {8, 8, 8, 8, 2}.
/// Throws EnvironmentError that shows the text if it is malformed or has more than 65 536 nodes.
std::vector<int> parse_slurm_tasks_per_node(std::string_view list);

}  // namespace libtrain::detail
