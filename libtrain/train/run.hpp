#pragma once

#include <functional>
#include <memory>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/train/context.hpp>
#include <libtrain/train/program.hpp>

namespace libtrain {

/// Runs `body` as one rank of a job, and returns the exit code for main().
///
/// Finds out who this process is (see detect_launch), connects the ranks, gives each its share of the cores, seeds
/// torch, and calls `body`; afterwards it writes the summary, and with `--timeline FILE` what all ranks did (see
/// Context::trace and Timeline). Every rank must call it.
///
/// Whatever is thrown, on any rank, ends the whole job within seconds with one readable report (rank, host, cause) and
/// the exit code of that Error (see ExitCode). A rank that has finished waits for the others, so that a job is done on
/// all ranks or on none. Where communication has failed, every rank that lives leaves its last 100 collectives in
/// DIR/collectives.rank<its number>.txt (DIR is `--output`), and the report says which rank is where. With
/// `--timeline FILE` a rank that fails leaves what it did itself in FILE.rank<its number>; MPI may end other ranks
/// before they can do the same.
int run(int argc, char** argv, const std::function<void(Context&)>& body);

/// The same with a description and declared options, for `--help` and for errors on misspelt options.
int run(int argc, char** argv, const Program& program, const std::function<void(Context&)>& body);

/// The same with ranks that the program has connected itself: the launcher's variables, and the options that say who
/// this process is and how long connecting may take, are not looked at.
int run(int argc, char** argv, const Program& program, std::shared_ptr<Communicator> communicator,
        const std::function<void(Context&)>& body);

}  // namespace libtrain
