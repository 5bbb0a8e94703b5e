#pragma once

#include <string>
#include <vector>

#include <tools/pack/shard_name.hpp>

namespace libtrain::pack {

/// Keeps the index of each of these shards of `folder` in its folder ".index", for runs that name `folder` in the same
/// way and take that as ShardOptions::index_folder. An index that cannot be written is a warning. Throws
/// EnvironmentError for a shard that cannot be read.
void write_shard_indices(ShardKind kind, const std::string& folder, const std::vector<std::string>& shards);

}  // namespace libtrain::pack
