#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// How a whole file is compressed: zlib (RFC 1950) or gzip (RFC 1952), both around deflate (RFC 1951).
enum class Compression { none, zlib, gzip };

/// What a file that begins with these bytes looks like. Two bytes tell: an uncompressed file may happen to begin alike.
Compression compression_of(std::string_view first_bytes);

/// The content of a compressed file as a file of the same name that lies in memory. The file is one zlib stream or any
/// number of gzip members in a row; zeros behind the end are padding. Any thread may call it.
///
/// Throws as File::read_at; EnvironmentError that names the file and the offset in it where it is damaged, truncated or
/// followed by something else, and where the content is longer than `limit_bytes`; UsageError for Compression::none.
/// Deflate shrinks by at most 1,032, so that n bytes cannot become more than 1,032 n. Memory: the content, and at most
/// 8 MiB while it is made.
std::unique_ptr<const File> inflate_file(const File& file, Compression compression, std::uint64_t limit_bytes);

}  // namespace libtrain::data
