#pragma once

#include <cstddef>
#include <vector>

#include <libtrain/data/image/image.hpp>

namespace libtrain::data {

/// How many samples of colour a JPEG keeps for those of brightness.
enum class ChromaSubsampling {
  yuv444,  ///< 4:4:4: as many
  yuv420,  ///< 4:2:0: half as many in either direction
};

struct JpegEncoderOptions {
  int quality = 95;                                           ///< 1 to 100, as libjpeg counts it
  ChromaSubsampling subsampling = ChromaSubsampling::yuv420;  ///< grey pictures have no chroma
  int restart_interval = 0;                                   ///< MCUs between restart markers, up to 65535; 0: none
};

/// The picture as a baseline JPEG (JFIF) with optimised Huffman tables, grey or YCbCr.
///
/// Throws UsageError for options outside their range, a picture that is empty, does not fit its bytes, or has a side
/// above 65500 pixels; EnvironmentError where libjpeg gives up. Any thread may call it. Memory: 2 bytes a sample and
/// the result.
std::vector<std::byte> encode_jpeg(const Image& image, const JpegEncoderOptions& options = {});

}  // namespace libtrain::data
