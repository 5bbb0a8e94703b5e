#pragma once

#include <cstddef>

#include <libtrain/data/formats/shard_index.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// Longer names of members are refused.
constexpr std::size_t kLongestTarName = 4096;

/// The regular files in an uncompressed tar archive, with their names, in their order. Reads POSIX.1-1988 (ustar),
/// POSIX.1-2001 (pax: path and size) and GNU tar's long names and base-256 sizes. Directories, links, devices and
/// unknown members are left out. Names are names only: nothing is ever written where they point.
///
/// Throws EnvironmentError that names the file and the byte offset: for a wrong header checksum, for a sparse file, for
/// a name in a global header, for an archive that ends before its two zero blocks, even between two members, as
/// truncated files do, and for anything behind these blocks but up to 1 MiB of zeros, as joined archives and files with
/// lost pages have it. Throws what File::read_at throws.
ShardIndex index_tar(const File& file);

}  // namespace libtrain::data
