#include <tools/pack/shard_indices.hpp>

#include <libtrain/data/formats/shard_index.hpp>
#include <libtrain/data/formats/tar.hpp>
#include <libtrain/data/formats/tf_record.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>

namespace libtrain::pack {

void write_shard_indices(ShardKind kind, const std::string& folder, const std::vector<std::string>& shards) {
  const data::detail::LocalStorage storage{folder};
  for (const auto& shard : shards) {
    // Opening a shard for the first time keeps its index.
    const data::ShardOptions options{.index_folder = folder + "/.index", .version = storage.info(shard).version};
    if (kind == ShardKind::tar) {
      const data::TarFile opened{storage.open(shard), options};
    } else {
      const data::TfRecordFile opened{storage.open(shard), options};
    }
  }
}

}  // namespace libtrain::pack
