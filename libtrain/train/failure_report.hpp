#pragma once

#include <string>

#include <libtrain/base/error.hpp>

namespace libtrain::detail {

/// What a failure says to the user and to the shell.
struct Failure {
  ExitCode code = ExitCode::failure;
  ErrorScope scope = ErrorScope::this_rank;
  std::string message;
};

class CollectiveDump;

/// The exception being handled, as a Failure. Call it inside a catch block.
Failure current_failure();

/// Logs "rank 1 of 2 on node7 (process 4242) failed: ..." once for the whole job: rank 0 at once; the others only when,
/// after a moment, no other rank has ended the job for the same reason, since then the failure is theirs alone.
/// With `collectives`, for which write_after has returned true, it says where to look and then, within about a second,
/// which rank is where.
void report_failure(const Failure& failure, int rank, int world_size, const CollectiveDump* collectives = nullptr);

/// The same for a process that failed before it knew its rank, such as on its command line: the first one of its job on
/// this host says so.
void report_early_failure(const Failure& failure);

}  // namespace libtrain::detail
