#pragma once

#include <libtrain/comm/communicator.hpp>
#include <libtrain/data/dataset.hpp>

namespace libtrain {

/// Throws UsageError on every rank, all with the same text, unless all ranks have the same data: the same lines of
/// Dataset::identity(). A folder that is still being filled, or that differs from node to node, would otherwise give
/// some samples twice and others wrong labels. All ranks must call it. No sample is read.
void require_same_data(const data::Dataset& dataset, Communicator& communicator);

}  // namespace libtrain
