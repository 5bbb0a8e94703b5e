#pragma once

#include <functional>

#include <libtrain/comm/connect.hpp>
#include <libtrain/train/context.hpp>
#include <libtrain/train/program.hpp>

namespace libtrain {

/// Runs `body` as one rank of a job, and returns the exit code for main().
///
/// Detects the rank of this process (see detect_launch), connects the ranks and agrees with them on the device
/// (`--device`, see connect), gives each its share of the cores, seeds torch, and calls `body`; afterwards it writes
/// the summary, and with `--timeline FILE` the spans of all ranks (see Context::trace and Timeline). Every rank must
/// call it.
///
/// On a GPU, `body` is called with that GPU as the current device of the thread, and with a stream of its own as the
/// current stream, not the default stream: CUDA graphs cannot be captured on the default stream. Other threads of the
/// program have the default stream; a tensor that they make must be handed over as LibTorch requires it (an event, and
/// record_stream). After the body, `run` waits until the GPU has finished the work of that stream. Functions of
/// LibTorch that ask for CUDA, such as torch::manual_seed(), may be called inside the body, and must not be called
/// before `run`: LibTorch's CUDA part is loaded only when the ranks use GPUs.
///
/// If `body` throws StoppedOnRequest, on all ranks, the run ends in the same way, with exit code 5.
///
/// An exception on any rank ends the whole job within seconds with one report (rank, host, cause) and the exit code of
/// that Error (see ExitCode). A rank that has finished waits for the others, at most `--timeout`, after which the job
/// fails: it succeeds on all ranks or none. If communication fails, every running rank writes its last 100 collectives
/// to DIR/collectives.rank<its number>.txt (DIR is `--output`), and the report lists in which collective each rank is.
/// With `--timeline FILE` a rank that fails writes its own spans to FILE.rank<its number>; MPI may end other ranks
/// before they do the same.
int run(int argc, char** argv, const std::function<void(Context&)>& body);

/// The same with a description and declared options, for `--help` and for errors about misspelt options.
int run(int argc, char** argv, const Program& program, const std::function<void(Context&)>& body);

/// The same with ranks that the program has connected, by connect() or otherwise: the launcher's variables and the
/// options for the rank of this process, for connecting and for the device are ignored.
int run(int argc, char** argv, const Program& program, Connection connection,
        const std::function<void(Context&)>& body);

}  // namespace libtrain
