#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace libtrain::data::detail {

/// Where an image lies in a data set of many shards: the number of its shard and its place among that shard's images.
struct ShardPlace {
  std::size_t shard = 0;
  std::uint64_t position = 0;
};

/// Numbers the images of many shards through, shard after shard; a shard may be empty. Immutable: any thread may call
/// it.
class ShardTable {
 public:
  /// `name` is that of the set's folder, for messages; `sizes` are how many images each shard holds. Throws
  /// EnvironmentError where there is no image at all, or more than 64 bits count.
  ShardTable(std::string name, const std::vector<std::uint64_t>& sizes);

  const std::string& name() const { return name_; }

  /// The images of all shards together.
  std::uint64_t size() const { return ends_.back(); }

  /// Takes time in proportion to the logarithm of the number of shards. Throws UsageError unless `index` < size().
  ShardPlace place(std::uint64_t index) const;

  /// How many images each shard holds, in order, without the empty ones: see ImageSource::blocks().
  std::vector<std::uint64_t> blocks() const;

 private:
  std::string name_;
  std::vector<std::uint64_t> ends_;  // of each shard, the number of the first image behind it
};

template <typename Shard>
std::vector<std::uint64_t> sizes_of(const std::vector<Shard>& shards) {
  std::vector<std::uint64_t> sizes;
  sizes.reserve(shards.size());
  for (const auto& shard : shards) sizes.push_back(shard.size());
  return sizes;
}

}  // namespace libtrain::data::detail
