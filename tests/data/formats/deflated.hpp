#pragma once

#define ZLIB_CONST
#include <zlib.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace libtrain::data {

enum class Wrapping { zlib, gzip };

/// `bytes` compressed by zlib.
inline std::string deflated(std::string_view bytes, Wrapping wrapping) {
  z_stream stream{};
  const int window = wrapping == Wrapping::gzip ? 15 + 16 : 15;
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2 failed");
  }
  std::string result(deflateBound(&stream, static_cast<uLong>(bytes.size())), '\0');
  stream.next_in = reinterpret_cast<const Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  const int status = deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) throw std::runtime_error("deflate failed");
  return result;
}

}  // namespace libtrain::data
