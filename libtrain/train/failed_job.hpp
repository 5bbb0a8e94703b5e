#pragma once

#include <optional>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/launch/launch.hpp>
#include <libtrain/train/failure_report.hpp>

namespace libtrain {

/// Handles an exception as `run` does, for a program with its own main(), except StoppedOnRequest, which is no failure:
/// catch it before. Call it in a catch block for all other exceptions, on any rank:
///
///     } catch (...) {
///       return lt::end_failed_job(launch, communicator.get());
///     }
///
/// Reports the exception being handled (once if several ranks fail for the same reason), and ends the whole job with
/// the exception's exit code. `launch` is empty and `communicator` null if the exception was thrown before they
/// existed. In a single process it returns the code. In a job of several ranks it does not return: static destructors
/// could wait for threads that are blocked in another library.
int end_failed_job(const std::optional<Launch>& launch, Communicator* communicator);

namespace detail {

/// The same for a given failure; `collectives` is null or has been written for it.
int end_failed_job(const Failure& failure, const std::optional<Launch>& launch, Communicator* communicator,
                   const CollectiveDump* collectives);

}  // namespace detail

}  // namespace libtrain
