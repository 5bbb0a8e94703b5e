#pragma once

#include <functional>
#include <memory>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/train/context.hpp>
#include <libtrain/train/program.hpp>

namespace libtrain {

/// Runs `body` as one rank of a job, and returns the exit code for main().
///
/// Detects the rank of this process (see detect_launch), connects the ranks, gives each its share of the cores, seeds
/// torch, and calls `body`; afterwards it writes the summary, and with `--timeline FILE` the spans of all ranks (see
/// Context::trace and Timeline). Every rank must call it.
///
/// An exception on any rank ends the whole job within seconds with one report (rank, host, cause) and the exit code of
/// that Error (see ExitCode). A rank that has finished waits for the others, so that a job succeeds on all ranks or on
/// none. If communication fails, every running rank writes its last 100 collectives to
/// DIR/collectives.rank<its number>.txt (DIR is `--output`), and the report lists in which collective each rank is.
/// With `--timeline FILE` a rank that fails writes its own spans to FILE.rank<its number>; MPI may end other ranks
/// before they do the same.
int run(int argc, char** argv, const std::function<void(Context&)>& body);

/// The same with a description and declared options, for `--help` and for errors about misspelt options.
int run(int argc, char** argv, const Program& program, const std::function<void(Context&)>& body);

/// The same with ranks that the program has connected: the launcher's variables and the options for the rank of this
/// process and for connecting are ignored.
int run(int argc, char** argv, const Program& program, std::shared_ptr<Communicator> communicator,
        const std::function<void(Context&)>& body);

}  // namespace libtrain
