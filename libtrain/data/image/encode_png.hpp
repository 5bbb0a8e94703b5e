#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <libtrain/data/image/image.hpp>

namespace libtrain::data {

/// The image as a PNG of 8 bits, grey or RGB, not interlaced. The same image gives the same bytes with the same
/// versions of libspng and zlib. Throws UsageError for an image that is empty or does not match its bytes,
/// EnvironmentError if libspng fails. Any thread may call it.
std::vector<std::byte> encode_png(const Image& image);

/// Writes encode_png(image) to a local file, which is complete or absent: an existing file is replaced at the end, and
/// a device or a pipe is written to directly. The folder must exist. Throws as encode_png(), and EnvironmentError that
/// names the file if it cannot be written.
void write_png(const Image& image, const std::string& path);

}  // namespace libtrain::data
