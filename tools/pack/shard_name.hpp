#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace libtrain::pack {

/// What a shard is: a tar archive in WebDataset's layout, or a TFRecord file of tf.train.Example.
enum class ShardKind { tar, tf_record };

/// As many as five digits can count.
inline constexpr std::uint64_t kMaxShards = 99'999;

/// `number` with zeros in front, at least `digits` long.
std::string zero_padded(std::uint64_t number, int digits);

/// train-00003-of-00012.tar or train.tfrecord-00003-of-00012; shards are counted from 0.
std::string shard_name(const std::string& prefix, ShardKind kind, std::uint64_t shard, std::uint64_t shards);

/// Whether shard_name() makes this name of that prefix and kind, and any numbers.
bool is_shard_name(std::string_view name, std::string_view prefix, ShardKind kind);

}  // namespace libtrain::pack
