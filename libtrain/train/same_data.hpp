#pragma once

#include <libtrain/comm/communicator.hpp>
#include <libtrain/data/indexed_dataset.hpp>

namespace libtrain {

/// Throws UsageError on every rank, all with the same text, unless all ranks have the same data: the same lines of
/// IndexedDataset::identity(). A folder that is still being filled, or that differs from node to node, would otherwise
/// give some samples twice and others wrong labels. All ranks must call it. No sample is read. A loader whose shard is
/// Context::shard() does it when its first epoch begins.
void require_same_data(const data::IndexedDataset& dataset, Communicator& communicator);
void require_same_data(const data::DatasetIdentity& identity, Communicator& communicator);

}  // namespace libtrain
