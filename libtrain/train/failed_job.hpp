#pragma once

#include <optional>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/launch/launch.hpp>
#include <libtrain/train/failure_report.hpp>

namespace libtrain {

/// What `run` does with an exception, for a program with a main() of its own. Call it where everything else is caught,
/// on any rank:
///
///     } catch (...) {
///       return lt::end_failed_job(launch, communicator.get());
///     }
///
/// Reports the exception being handled, one of several ranks that fail for the same reason, and ends the whole job with
/// the exit code that belongs to it; `launch` is empty and `communicator` null where it came too early for them. A
/// single process gets the code back. A rank of several does not return: static destructors could wait for threads that
/// are stuck in a foreign library.
int end_failed_job(const std::optional<Launch>& launch, Communicator* communicator);

namespace detail {

/// The same for a failure that is known, of which `collectives`, unless it is null, has been written.
int end_failed_job(const Failure& failure, const std::optional<Launch>& launch, Communicator* communicator,
                   const CollectiveDump* collectives);

}  // namespace detail

}  // namespace libtrain
