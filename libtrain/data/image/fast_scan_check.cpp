#include <libtrain/data/image/fast_scan_check.hpp>

#include <initializer_list>
#include <vector>

#include <libtrain/base/log.hpp>
#include <libtrain/data/image/jpeg_encoder.hpp>

namespace libtrain::data::detail {

namespace {

// Several MCUs in either direction, the last ones in part beyond the edge, with contrast in each.
Image make_picture() {
  Image image{.width = 120, .height = 75};
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      for (int c = 0; c < image.channels; ++c) {
        image.pixels.push_back(static_cast<std::uint8_t>(5 * x + 3 * y + 60 * c + x * y % 31));
      }
    }
  }
  return image;
}

bool agree(const DecodeWay& fast, const DecodeWay& plain, const std::vector<std::byte>& file) {
  // With MCUs to leave out on either side and above.
  constexpr Crop kPart{.x = 49, .y = 36, .width = 20, .height = 21};
  constexpr Crop kPartOfHalf{.x = 19, .y = 18, .width = 22, .height = 14};
  for (const DecodeOptions& options :
       {DecodeOptions{}, DecodeOptions{.crop = kPart}, DecodeOptions{.scale_denominator = 2},
        DecodeOptions{.scale_denominator = 2, .crop = kPartOfHalf}}) {
    const auto found = fast(file, options);
    const auto wanted = plain(file, options);
    if (!found || !wanted || found->pixels != wanted->pixels) return false;
  }
  return true;
}

}  // namespace

bool check_fast_scan(const DecodeWay& fast, const DecodeWay& plain) {
  const Image picture = make_picture();
  for (const JpegEncoderOptions& options : {JpegEncoderOptions{}, JpegEncoderOptions{.restart_interval = 4},
                                            JpegEncoderOptions{.subsampling = ChromaSubsampling::yuv444}}) {
    if (agree(fast, plain, encode_jpeg(picture, options))) continue;
    log_warning(
        "libtrain's own decoder of JPEG scans does not fit the libjpeg that was loaded and is switched off: pictures "
        "are "
        "right, but take longer to decode. Build libtrain with the headers of the libjpeg-turbo that it runs with "
        "(ldd PROGRAM names the file).");
    return false;
  }
  return true;
}

}  // namespace libtrain::data::detail
