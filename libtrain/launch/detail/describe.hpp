#pragma once

#include <string>
#include <vector>

#include <libtrain/launch/launch.hpp>

namespace libtrain::detail {

/// The detected values and the variables that they come from, one line each, for rank 0 to log once:
/// "rank 3 of 8 (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE)". Without the warnings.
std::vector<std::string> describe(const Launch& launch);

}  // namespace libtrain::detail
