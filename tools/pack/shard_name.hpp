#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace libtrain::pack {

/// A tar archive in WebDataset's layout, or a TFRecord file of tf.train.Example.
enum class ShardKind { tar, tf_record };

/// The largest number of five digits.
inline constexpr std::uint64_t kMaxShards = 99'999;

/// `number` with leading zeros, at least `digits` long.
std::string zero_padded(std::uint64_t number, int digits);

/// train-00003-of-00012.tar or train.tfrecord-00003-of-00012; shards are counted from 0.
std::string shard_name(const std::string& prefix, ShardKind kind, std::uint64_t shard, std::uint64_t shards);

/// Whether shard_name() can return this name for the prefix and kind, with any numbers.
bool is_shard_name(std::string_view name, std::string_view prefix, ShardKind kind);

}  // namespace libtrain::pack
