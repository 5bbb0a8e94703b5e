#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <libtrain/data/image/decode_options.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/image_header.hpp>

namespace libtrain::data {

/// Decodes an image file, which its first bytes say to be a JPEG or a PNG: see JpegDecoder and decode_png(). Of a JPEG
/// with restart markers every few MCUs, only the segments that a rectangle needs are decoded.
///
/// Keeps its working memory between pictures; used by one thread at a time. Throws as those do, and EnvironmentError
/// for a file of any other format.
class ImageDecoder {
 public:
  ImageDecoder();
  ImageDecoder(ImageDecoder&&) noexcept;
  ImageDecoder& operator=(ImageDecoder&&) noexcept;
  ~ImageDecoder();

  Image decode(std::span<const std::byte> file, const DecodeOptions& options = {});

  /// Of a file whose header was read before, into an image whose memory is used again. After an error it has any
  /// content.
  void decode(std::span<const std::byte> file, const ImageHeader& header, const DecodeOptions& options, Image& to);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// ImageDecoder::decode() with a decoder of its own.
Image decode_image(std::span<const std::byte> file, const DecodeOptions& options = {});

}  // namespace libtrain::data
