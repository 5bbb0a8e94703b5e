#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/disk_file.hpp>
#include <libtrain/data/storage/file.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

namespace detail {

/// An entry on disk is the file's content followed by a trailer of eight 64-bit numbers: a constant that names the
/// format, the key (3), the hash of the content (2), the hash of the six before (2).
inline constexpr std::uint64_t kTrailerBytes = 64;

/// What the entry of a file of `size` bytes takes of the disk.
std::uint64_t entry_bytes(std::uint64_t size);

/// Puts the trailer behind the content. 0, or the error code of the write.
int write_trailer(const DiskFile& entry, const CacheKey& key, const ContentHash& content);

/// What is wrong with the length of an entry; empty where nothing is.
std::string find_wrong_length(const DiskFile& entry, const CacheKey& key);

/// What is wrong with an entry, whose content is read for that; empty where nothing is.
std::string find_damage(const DiskFile& entry, const CacheKey& key);

}  // namespace detail

}  // namespace libtrain::data
