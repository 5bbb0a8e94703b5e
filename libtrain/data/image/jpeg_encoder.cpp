#include <libtrain/data/image/jpeg_encoder.hpp>

#include <algorithm>
#include <string>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/image_view.hpp>
#include <libtrain/data/image/libjpeg.hpp>

namespace libtrain::data {

namespace {

constexpr int kGreatestQuality = 100;
constexpr int kGreatestInterval = 65535;

void check_range(int value, int low, int high, const char* what) {
  if (value >= low && value <= high) return;
  throw UsageError(text("JpegEncoderOptions::", what, " is ", value, ", expected ", low, " to ", high, "."));
}

void require_encodable(const Image& image, const JpegEncoderOptions& options) {
  detail::require_picture(image);
  if (std::max(image.width, image.height) > JPEG_MAX_DIMENSION) {
    throw UsageError(text("A picture of ", image.width, " x ", image.height,
                          " pixels cannot be a JPEG; sides can have up to ", JPEG_MAX_DIMENSION, "."));
  }
  check_range(options.quality, 1, kGreatestQuality, "quality");
  check_range(options.restart_interval, 0, kGreatestInterval, "restart_interval");
}

// Runs inside a guarded step.
void write_picture(jpeg_compress_struct& info, const Image& image, const JpegEncoderOptions& options) {
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = image.channels;
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, options.quality, TRUE);
  info.optimize_coding = TRUE;
  info.restart_interval = static_cast<unsigned int>(options.restart_interval);
  if (image.channels == 3) {
    const int luma = options.subsampling == ChromaSubsampling::yuv420 ? 2 : 1;
    info.comp_info[0].h_samp_factor = luma;
    info.comp_info[0].v_samp_factor = luma;
  }
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    // libjpeg only reads what it is given.
    JSAMPROW row = const_cast<JSAMPROW>(image.row(static_cast<int>(info.next_scanline)));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
}

}  // namespace

std::vector<std::byte> encode_jpeg(const Image& image, const JpegEncoderOptions& options) {
  require_encodable(image, options);
  const std::string name = "to encode";
  // A writer reports its errors to a reader, which here has nothing to read.
  detail::JpegReader reader({}, name, 0);
  detail::JpegWriter writer(reader);
  jpeg_compress_struct& info = writer.info();
  if (!detail::guarded(reader.errors(), [&] { write_picture(info, image, options); })) {
    throw EnvironmentError(text("A picture of ", image.width, " x ", image.height,
                                " pixels could not be encoded as a JPEG: ", reader.errors().message, "."));
  }
  const auto bytes = writer.bytes();
  return {bytes.begin(), bytes.end()};
}

}  // namespace libtrain::data
