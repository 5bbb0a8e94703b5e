#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// The compression of a whole file: zlib (RFC 1950) or gzip (RFC 1952), both with deflate (RFC 1951).
enum class Compression { none, zlib, gzip };

/// Guesses the compression of a file from its first two bytes: an uncompressed file may begin with the same bytes.
Compression compression_of(std::string_view first_bytes);

/// The content of a compressed file as a file of the same name in memory. The file is one zlib stream or a sequence of
/// gzip members; zeros after the end are padding. Any thread may call it.
///
/// Throws as File::read_at; EnvironmentError that names the file and the offset if it is damaged, truncated or followed
/// by other bytes, or if the content is longer than `limit_bytes`; UsageError for Compression::none. The compression
/// ratio of deflate is at most 1,032. Memory: the content, and at most 8 MiB during the call.
std::unique_ptr<const File> inflate_file(const File& file, Compression compression, std::uint64_t limit_bytes);

}  // namespace libtrain::data
