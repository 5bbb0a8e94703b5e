#pragma once

#include <libtrain/launch/launch.hpp>

namespace libtrain::detail {

/// Which job this process belongs to, in words that are the same on all its ranks and in no other job: the launcher's
/// own number of it, or LIBTRAIN_JOB_ID. Nothing where neither says it. Needs the launcher.
/// Throws EnvironmentError for a LIBTRAIN_JOB_ID that is too long or has control characters.
void find_job(Launch& launch, const Environment& environment);

/// The port at which rank 0 of `job` listens where nothing says which: between 10000 and 32767, below those that Linux
/// gives to connections, and seldom that of another job.
int default_port_of(const std::string& job);

}  // namespace libtrain::detail
