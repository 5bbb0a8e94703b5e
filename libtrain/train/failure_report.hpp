#pragma once

#include <string>

#include <libtrain/base/error.hpp>

namespace libtrain::detail {

/// The message and the exit code of a failure.
struct Failure {
  ExitCode code = ExitCode::failure;
  ErrorScope scope = ErrorScope::this_rank;
  std::string message;
};

class CollectiveDump;

/// The exception being handled, as a Failure. Call it inside a catch block.
Failure current_failure();

/// From here on, the process records when it continues after it was stopped (SIGCONT), for report_failure. Does nothing
/// if the program has a handler of its own.
void record_continues();

/// Logs "rank 1 of 2 on node7 (process 4242) failed: ..." once for the whole job: on rank 0 immediately; on other ranks
/// after a delay, if no other rank has ended the job for the same reason by then. A failed communication of a process
/// that was stopped until a few seconds ago is reported last.
/// With `collectives`, for which write_after has returned true, it also logs where the files are and, within about a
/// second, in which collective each rank is.
void report_failure(const Failure& failure, int rank, int world_size, const CollectiveDump* collectives = nullptr);

/// The same for a process that failed before it knew its rank, for example because of its command line: only the first
/// such process of the job on this host reports.
void report_early_failure(const Failure& failure);

}  // namespace libtrain::detail
