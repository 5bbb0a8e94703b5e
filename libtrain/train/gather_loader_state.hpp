#pragma once

#include <libtrain/comm/communicator.hpp>
#include <libtrain/data/loader_state.hpp>

namespace libtrain {

/// The combined state of all ranks' loaders, the same on every rank: one rank stores it, and all ranks resume from it.
/// `own` is this rank's LoaderEpoch::state() after the same step as on the other ranks. All ranks must call it. Throws
/// UsageError on every rank if their positions differ.
data::LoaderState gather_loader_state(const data::LoaderState& own, Communicator& communicator);

}  // namespace libtrain
