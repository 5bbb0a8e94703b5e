#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <libtrain/data/formats/inflate.hpp>
#include <libtrain/data/formats/shard_index.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// How a shard is opened.
struct ShardOptions {
  /// A local folder that keeps the indices of shards, so that a shard is read through only once. Used where the version
  /// below is known, and not for compressed shards, whose content has to be inflated anyway.
  std::string index_folder = {};

  /// FileInfo::version of the shard: an index is used only for the version that it was built from.
  std::string version = {};

  /// A compressed shard whose content is longer is refused: it has to lie in memory.
  std::uint64_t inflated_limit_bytes = std::uint64_t{4} << 30;
};

namespace detail {

/// What tells the shards of one format from those of another.
struct ShardFormat {
  std::string_view name = {};
  Compression (*compression)(const File&) = nullptr;
  ShardIndex (*index)(const File&) = nullptr;
};

/// A shard that is ready to be read. `file` holds its content, inflated where it was compressed.
struct IndexedShard {
  std::unique_ptr<const File> file = {};
  ShardIndex index = {};
};

/// Takes the index from the folder where it is there and fits; builds it otherwise, and keeps it. Of several processes
/// or threads that open a shard at the same time one builds the index, for which the others wait, at most 10 minutes.
/// Where it cannot be kept, a warning is all. Throws what building an index throws, what inflate_file() throws, and
/// UsageError without a file.
IndexedShard open_shard(std::unique_ptr<const File> file, const ShardFormat& format, const ShardOptions& options);

}  // namespace detail

}  // namespace libtrain::data
