#pragma once

#include <libtrain/comm/communicator.hpp>
#include <libtrain/data/indexed_dataset.hpp>

namespace libtrain {

/// Throws UsageError on every rank, with the same text, unless all ranks have the same data: the same lines of
/// IndexedDataset::identity(). With a folder that is still being filled, or that differs between nodes, some samples
/// would be repeated and others would have wrong labels. All ranks must call it. Reads no sample. A loader whose shard
/// is Context::shard() calls it when its first epoch begins.
void require_same_data(const data::IndexedDataset& dataset, Communicator& communicator);
void require_same_data(const data::DatasetIdentity& identity, Communicator& communicator);

}  // namespace libtrain
