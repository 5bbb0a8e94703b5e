#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/base/environment.hpp>

namespace libtrain::detail {

using NcclSettings = std::vector<std::pair<std::string, std::string>>;

/// The settings that libtrain chooses where `environment` has none:
/// - NCCL_LAUNCH_ORDER_IMPLICIT=1: collectives of several communicators of a GPU start in the order of the calls, which
///   could deadlock otherwise.
NcclSettings nccl_defaults(const Environment& environment);

/// One sentence for the log: "NCCL 2.28.9 with NCCL_IB_HCA=mlx5 (set by the user), NCCL_LAUNCH_ORDER_IMPLICIT=1 (set by
/// libtrain)". `version` is NCCL's number, 22809 for 2.28.9; the user's settings are the NCCL_ variables of
/// `environment`.
std::string describe_nccl_settings(int version, const Environment& environment, const NcclSettings& defaults);

/// Puts the defaults into the environment of this process, once, and returns the sentence above. Call it before the
/// first call of NCCL, which reads its variables once; no other thread may read or change the environment meanwhile.
const std::string& apply_nccl_settings(int version);

}  // namespace libtrain::detail
