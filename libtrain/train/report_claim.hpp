#pragma once

#include <string>

#include <libtrain/base/environment.hpp>

namespace libtrain::detail {

/// What the ranks of one job on one host have in common, and no other job: from PMIX_NAMESPACE or Slurm's job and step.
/// Empty where the launcher gives nothing.
std::string job_name(const Environment& environment);

/// Whether this process is the first on its host to ask for `job`: the one that reports a failure which several ranks
/// meet at the same moment. Always true for an empty name. The claim is held until the process ends, however it ends:
/// it is a name among Linux's abstract sockets, not a file.
bool claim_report(const std::string& job);

}  // namespace libtrain::detail
