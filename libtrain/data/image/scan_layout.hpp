#pragma once

#include <optional>

#include <libtrain/data/image/libjpeg.hpp>
#include <libtrain/data/image/scan_decoder.hpp>

namespace libtrain::data::detail {

/// What libjpeg knows of the first scan once jpeg_start_decompress() has been called; builds the tables of `decoder`
/// for it. None for scans that ScanDecoder does not understand: progressive, arithmetic, not of all components, or with
/// a Huffman code that HuffmanTable refuses.
std::optional<ScanLayout> prepare_scan(const jpeg_decompress_struct& info, ScanDecoder& decoder);

}  // namespace libtrain::data::detail
