#pragma once

#include <libtrain/comm/communicator.hpp>
#include <libtrain/data/loader_state.hpp>

namespace libtrain {

/// The state of all ranks' loaders, the same on every rank: what one rank stores for all, and all resume from. `own` is
/// what this rank's LoaderEpoch::state() says after the same step as on the others. All ranks must call it. Throws
/// UsageError on every rank where they stand at different places.
data::LoaderState gather_loader_state(const data::LoaderState& own, Communicator& communicator);

}  // namespace libtrain
