#include <libtrain/data/image/detail/jpeg.hpp>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/decode_options.hpp>
#include <libtrain/data/image/detail/fast_scan.hpp>
#include <libtrain/data/image/detail/libjpeg.hpp>
#include <libtrain/data/image/image.hpp>

namespace libtrain::data::detail {

namespace {

// Avoids libjpeg's special cases for narrower parts.
constexpr int kMinPartWidth = 16;

J_COLOR_SPACE output_color(const jpeg_decompress_struct& info, const DecodeOptions& options) {
  switch (info.num_components) {
    case 1:
      return options.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    case 3:
      return JCS_RGB;
    case 4:
      return JCS_CMYK;
    default:
      throw EnvironmentError(text("JPEG '", options.name, "' has ", info.num_components,
                                  " components, expected 1 (grey), 3 (colour) or 4 (CMYK)."));
  }
}

ConvertPixels conversion(J_COLOR_SPACE from, int channels) {
  if (from == JCS_GRAYSCALE) return copy_grey;
  if (from == JCS_RGB) return channels == 3 ? copy_rgb : rgb_to_grey;
  return channels == 3 ? inverted_cmyk_to_rgb : inverted_cmyk_to_grey;
}

// Reads the header, sets libjpeg's options, and returns the rectangle to decode.
Crop prepare(JpegReader& reader, const DecodeOptions& options) {
  jpeg_decompress_struct& info = reader.info();
  reader.run([&info] { jpeg_read_header(&info, TRUE); });
  check_pixels("JPEG", options, info.image_width, info.image_height);
  reader.check_length();
  info.out_color_space = output_color(info, options);
  info.dct_method = JDCT_ISLOW;
  info.do_fancy_upsampling = TRUE;
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned int>(options.scale_denominator);
  reader.run([&info] { jpeg_calc_output_dimensions(&info); });
  return crop_of(options, static_cast<int>(info.output_width), static_cast<int>(info.output_height));
}

// Whether jpeg_crop_scanline() and jpeg_skip_scanlines() give the same pixels as decoding all. Call it after
// jpeg_start_decompress().
//
// Their known defects that matter here: a progressive file that ends before its coefficients are complete is smoothed
// across blocks, and the left edge of a part changes that (jdcoefct.c); and before libjpeg-turbo 3.0.0 (its change log,
// item 4) the width of components with sampling factors above 2 is wrong in scaled images. The other defects, up to
// 2.1.4, are in merged upsampling and colour quantisation, which are not used.
bool parts_are_exact(const jpeg_decompress_struct& info, int scale_denominator) {
  constexpr int kSmoothedCoefficients = 10;
  for (int c = 0; c < info.num_components; ++c) {
    const jpeg_component_info& component = info.comp_info[c];
    if (scale_denominator > 1 && (component.h_samp_factor > 2 || component.v_samp_factor > 2)) return false;
    if (!info.progressive_mode || info.coef_bits == nullptr) continue;
    for (int i = 1; i < kSmoothedCoefficients; ++i) {
      if (info.coef_bits[c][i] != 0) return false;
    }
  }
  return true;
}

struct Columns {
  int begin = 0;
  int end = 0;
};

// The columns to decode, a superset of the crop's. Upsampling treats the edges of a part as those of the image, which
// changes the outermost column of the part; libjpeg starts at whole MCUs. Rows need no such margin: libjpeg decodes the
// rows above and below that upsampling reads, and discards those that lack them.
Columns columns_of(const Crop& crop, const jpeg_decompress_struct& info) {
  const int width = static_cast<int>(info.output_width);
  const int context = info.max_h_samp_factor > 1 ? 1 : 0;
  const int begin = std::max(0, std::min(crop.x - context, width - kMinPartWidth));
  return {.begin = begin, .end = std::min(width, std::max(crop.x + crop.width + context, begin + kMinPartWidth))};
}

// The arguments of read_rows(), which runs inside a guarded step, where nothing may own memory.
struct RowJob {
  jpeg_decompress_struct* info = nullptr;
  FastScan* fast_scan = nullptr;  // null: libjpeg's own entropy decoder
  bool in_parts = false;          // skips rows and columns
  Crop crop = {};
  Columns columns = {};
  std::uint8_t* row = nullptr;  // with room for the whole width
  ConvertPixels convert = nullptr;
  Image* to = nullptr;
};

void read_row(jpeg_decompress_struct& info, std::uint8_t* row) {
  jpeg_read_scanlines(&info, &row, 1);
}

void read_rows(const RowJob& job) {
  jpeg_decompress_struct& info = *job.info;
  JDIMENSION begin = 0;
  if (job.in_parts) {
    begin = static_cast<JDIMENSION>(job.columns.begin);
    auto width = static_cast<JDIMENSION>(job.columns.end - job.columns.begin);
    jpeg_crop_scanline(&info, &begin, &width);
    if (job.fast_scan != nullptr) job.fast_scan->crop(info, begin, width);
  }
  const auto rows_above = static_cast<JDIMENSION>(job.crop.y);
  if (job.in_parts && rows_above > 0) jpeg_skip_scanlines(&info, rows_above);
  while (info.output_scanline < rows_above) read_row(info, job.row);

  const auto components = static_cast<std::size_t>(info.output_components);
  const auto pixels = static_cast<std::size_t>(job.crop.width);
  const std::size_t left = (static_cast<std::size_t>(job.crop.x) - begin) * components;
  const bool direct = (job.convert == copy_rgb || job.convert == copy_grey) &&
                      info.output_width == static_cast<JDIMENSION>(job.crop.width);
  for (int y = 0; y < job.crop.height; ++y) {
    if (direct) {
      read_row(info, job.to->row(y));
    } else {
      read_row(info, job.row);
      job.convert(job.row + left, job.to->row(y), pixels);
    }
  }
}

// Memory for `size` bytes at an unaligned address: libjpeg-turbo's vector code writes aligned rows past the caches, and
// then copying a row from memory takes longer than decoding it.
std::uint8_t* cached_row(std::vector<std::uint8_t>& memory, std::size_t size) {
  constexpr std::size_t kLargestVector = 64;
  memory.resize(size + kLargestVector + 1);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (kLargestVector - address % kLargestVector) + 1;
}

// The working memory of a decoder.
struct Memory {
  std::vector<std::uint8_t>& row;
  ScanDecoder* scan_decoder = nullptr;  // null: libjpeg's own entropy decoder
};

// Returns false if the scan decoder refused the scan: the image must be decoded without it.
bool read_pixels(JpegReader& reader, const Crop& crop, const DecodeOptions& options, const Memory& memory, Image& to) {
  jpeg_decompress_struct& info = reader.info();
  reader.run([&info] { jpeg_start_decompress(&info); });
  std::optional<FastScan> fast_scan;
  if (memory.scan_decoder != nullptr && !fast_scan.emplace(*memory.scan_decoder).take_over(reader)) fast_scan.reset();
  std::uint8_t* const row = cached_row(
      memory.row, static_cast<std::size_t>(info.output_width) * static_cast<std::size_t>(info.output_components));
  const RowJob job{.info = &info,
                   .fast_scan = fast_scan ? &*fast_scan : nullptr,
                   .in_parts = options.crop.has_value() && parts_are_exact(info, options.scale_denominator),
                   .crop = crop,
                   .columns = columns_of(crop, info),
                   .row = row,
                   .convert = conversion(info.out_color_space, options.channels),
                   .to = &to};
  return reader.try_run([&job] { read_rows(job); });
}

// Returns the number of damaged places that libjpeg found; std::nullopt if the scan decoder refused the scan.
std::optional<long> try_decode(std::span<const std::byte> file, const DecodeOptions& options, const Memory& memory,
                               Image& to) {
  JpegReader reader(file, options.name, options.maximum_warnings);
  const Crop crop = prepare(reader, options);
  shape(to, crop.width, crop.height, options.channels);
  if (!read_pixels(reader, crop, options, memory, to)) return std::nullopt;
  return reader.errors().warnings;
}

constexpr int kMaxQuality = 100;
constexpr int kMaxRestartInterval = 65535;

void check_range(int value, int low, int high, const char* what) {
  if (value >= low && value <= high) return;
  throw UsageError(text("JpegEncoderOptions::", what, " is ", value, ", expected ", low, " to ", high, "."));
}

void require_encodable(const Image& image, const JpegEncoderOptions& options) {
  require_valid_image(image);
  if (std::max(image.width, image.height) > JPEG_MAX_DIMENSION) {
    throw UsageError(text("An image of ", image.width, " x ", image.height,
                          " pixels cannot be a JPEG; sides can have up to ", JPEG_MAX_DIMENSION, "."));
  }
  check_range(options.quality, 1, kMaxQuality, "quality");
  check_range(options.restart_interval, 0, kMaxRestartInterval, "restart_interval");
}

// Runs inside a guarded step.
void write_image(jpeg_compress_struct& info, const Image& image, const JpegEncoderOptions& options) {
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
    // libjpeg only reads the row.
    JSAMPROW row = const_cast<JSAMPROW>(image.row(static_cast<int>(info.next_scanline)));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
}

// Several MCUs in both directions, the last ones partly beyond the edge, each with contrast.
Image make_test_image() {
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
  // With MCUs to skip on the left, on the right and above.
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
  const Image image = make_test_image();
  for (const JpegEncoderOptions& options : {JpegEncoderOptions{}, JpegEncoderOptions{.restart_interval = 4},
                                            JpegEncoderOptions{.subsampling = ChromaSubsampling::yuv444}}) {
    if (agree(fast, plain, encode_jpeg(image, options))) continue;
    log_warning(
        "libtrain's decoder of JPEG scans does not match the loaded libjpeg and is disabled: images are correct, but "
        "decoding takes longer. Build libtrain with the headers of the libjpeg-turbo that it runs with (ldd PROGRAM "
        "names the file).");
    return false;
  }
  return true;
}

bool uses_fast_scan() {
  const auto decode_with = [](ScanDecoder* scan_decoder) {
    return [scan_decoder](std::span<const std::byte> file, const DecodeOptions& options) -> std::optional<Image> {
      Image image;
      std::vector<std::uint8_t> row;
      const Memory memory{.row = row, .scan_decoder = scan_decoder};
      return try_decode(file, options, memory, image) ? std::optional(image) : std::nullopt;
    };
  };
  static const bool result = [&decode_with] {
    ScanDecoder scan_decoder;
    return check_fast_scan(decode_with(&scan_decoder), decode_with(nullptr));
  }();
  return result;
}

void JpegDecoder::decode(std::span<const std::byte> file, const DecodeOptions& options, Image& to) {
  check_options(options);
  std::optional<long> damage;
  if (uses_fast_scan()) damage = try_decode(file, options, {.row = row_, .scan_decoder = &scan_decoder_}, to);
  if (!damage) damage = try_decode(file, options, {.row = row_}, to);
  damaged_places_ = damage.value();
}

Image JpegDecoder::decode(std::span<const std::byte> file, const DecodeOptions& options) {
  Image image;
  decode(file, options, image);
  return image;
}

std::vector<std::byte> encode_jpeg(const Image& image, const JpegEncoderOptions& options) {
  require_encodable(image, options);
  const std::string name = "to encode";
  // A writer reports its errors to a reader, which reads nothing here.
  JpegReader reader({}, name, 0);
  JpegWriter writer(reader);
  jpeg_compress_struct& info = writer.info();
  if (!guarded(reader.errors(), [&] { write_image(info, image, options); })) {
    throw EnvironmentError(text("An image of ", image.width, " x ", image.height,
                                " pixels could not be encoded as a JPEG: ", reader.errors().message, "."));
  }
  const auto bytes = writer.bytes();
  return {bytes.begin(), bytes.end()};
}

}  // namespace libtrain::data::detail
