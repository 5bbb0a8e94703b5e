#pragma once

#include <libtrain/launch/launch.hpp>

namespace libtrain::detail {

/// Sets the job that this process belongs to, as a text that is the same on all its ranks and different from that of
/// other jobs: LIBTRAIN_JOB_ID, or the launcher's own id of the job; std::nullopt if neither is set. Needs the
/// launcher. Throws EnvironmentError for a LIBTRAIN_JOB_ID that is too long or has control characters.
void find_job(Launch& launch, const Environment& environment);

/// The default port of rank 0 of `job`: between 10000 and 32767, below Linux' range for outgoing connections, and
/// rarely equal to that of another job.
int default_port_of(const std::string& job);

}  // namespace libtrain::detail
