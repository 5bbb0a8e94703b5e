#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <libtrain/data/image/decode_options.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/image_header.hpp>

namespace libtrain::data {

/// Decodes a JPEG or a PNG, chosen by the first bytes of the file: see JpegDecoder and decode_png(). Of a JPEG with
/// restart markers every few MCUs, only the segments that a rectangle needs are decoded.
///
/// Keeps its working memory between images; used by one thread at a time. Throws as JpegDecoder and decode_png() do,
/// and EnvironmentError for a file of any other format.
class ImageDecoder {
 public:
  ImageDecoder();
  ImageDecoder(ImageDecoder&&) noexcept;
  ImageDecoder& operator=(ImageDecoder&&) noexcept;
  ~ImageDecoder();

  Image decode(std::span<const std::byte> file, const DecodeOptions& options = {});

  /// `header` is the file's, and the memory of `to` is reused. After an error `to` has unspecified content.
  void decode(std::span<const std::byte> file, const ImageHeader& header, const DecodeOptions& options, Image& to);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// ImageDecoder::decode() of a new decoder.
Image decode_image(std::span<const std::byte> file, const DecodeOptions& options = {});

}  // namespace libtrain::data
