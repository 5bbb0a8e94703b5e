#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// How a whole file is compressed: zlib (RFC 1950) or gzip (RFC 1952), both around deflate (RFC 1951).
enum class Compression { none, zlib, gzip };

/// What a file that begins with these bytes looks like. Two bytes tell: an uncompressed file may happen to begin alike.
Compression compression_of(std::string_view first_bytes);

/// The content of `compressed`, which is one zlib stream or any number of gzip members in a row; zeros behind the end
/// are padding. `name` is the file in messages. Any thread may call it.
///
/// Throws EnvironmentError that names the offset in the compressed bytes where they are damaged, truncated or followed
/// by something else, and where the content is longer than `limit_bytes`. Deflate shrinks by at most 1,032, so that n
/// bytes cannot become more than 1,032 n. Memory: at most three times the content, or twice the compressed bytes where
/// that is more, and never more than three times the limit.
std::string inflate_bytes(std::string_view compressed, Compression compression, std::uint64_t limit_bytes,
                          std::string_view name);

/// The content of a compressed file as a file of the same name that lies in memory; `file` is read and closed.
/// Throws as inflate_bytes and read_all, with `limit_bytes` for both sizes.
std::unique_ptr<const File> inflate_file(std::unique_ptr<const File> file, Compression compression,
                                         std::uint64_t limit_bytes);

}  // namespace libtrain::data
