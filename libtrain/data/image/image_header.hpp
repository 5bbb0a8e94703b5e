#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <libtrain/data/image/decode_options.hpp>

namespace libtrain::data {

enum class ImageFormat { unknown, jpeg, png };

/// Decides by the first bytes rather than by the name: one of ImageNet's ".JPEG" files is a PNG.
ImageFormat sniff_image_format(std::span<const std::byte> file);

struct JpegComponent {
  int identifier = 0;
  int horizontal_sampling = 1;  ///< 1 to 4
  int vertical_sampling = 1;
};

/// The header of a JPEG (ITU-T T.81, annex B) up to its first scan.
struct JpegHeader {
  int width = 0;
  int height = 0;
  int precision = 8;  ///< bits of a sample
  int component_count = 0;
  std::array<JpegComponent, 4> components = {};
  bool progressive = false;
  bool arithmetic = false;                  ///< arithmetic coding rather than Huffman's
  int first_scan_components = 0;            ///< fewer than component_count if there is more than one scan
  int restart_interval = 0;                 ///< MCUs between restart markers, 0 for none
  bool jfif = false;                        ///< has a JFIF marker
  std::optional<int> adobe_transform = {};  ///< of Adobe's marker; 0: RGB or CMYK, 1: YCbCr, 2: YCCK
  std::size_t frame_offset = 0;             ///< of the frame header's marker in the file
  std::size_t scan_offset = 0;              ///< of the first entropy-coded byte in the file

  int maximum_horizontal_sampling() const;
  int maximum_vertical_sampling() const;

  /// The size of an MCU, the unit of a single scan, in pixels; one block of 8 x 8 if there is one component.
  int mcu_width() const { return 8 * (component_count == 1 ? 1 : maximum_horizontal_sampling()); }
  int mcu_height() const { return 8 * (component_count == 1 ? 1 : maximum_vertical_sampling()); }
  int mcus_per_row() const { return detail::scaled(width, mcu_width()); }
  int mcu_rows() const { return detail::scaled(height, mcu_height()); }
};

/// Throws as read_image_header(), and for what libjpeg-turbo 2 cannot decode: lossless and hierarchical frames, more
/// than 4 components, a height that is defined later. Accepts every sample precision.
JpegHeader parse_jpeg_header(std::span<const std::byte> file, const std::string& name);

/// The colour type in the file of a PNG.
enum class PngColor { grey = 0, rgb = 2, palette = 3, grey_alpha = 4, rgb_alpha = 6 };

/// The first chunk of a PNG (W3C, Portable Network Graphics, 11.2.1). Its checksum is not verified.
struct PngHeader {
  int width = 0;
  int height = 0;
  int bit_depth = 0;
  PngColor color = PngColor::grey;
  bool interlaced = false;

  int channels() const;  ///< samples per pixel in the file: 1 for a palette
};

/// Throws as read_image_header().
PngHeader parse_png_header(std::span<const std::byte> file, const std::string& name);

/// Properties of an image file that are known without decoding it.
struct ImageHeader {
  ImageFormat format = ImageFormat::unknown;
  int width = 0;  ///< pixels; an orientation in EXIF data is ignored, as by Pillow
  int height = 0;
  int channels = 0;   ///< in the file: 1 grey; 2 grey, alpha; 3 colour or palette; 4 colour, alpha (PNG), CMYK (JPEG)
  int bit_depth = 0;  ///< of a sample, or of a palette's index
  bool progressive = false;             ///< a progressive JPEG or an interlaced PNG
  std::optional<JpegHeader> jpeg = {};  ///< of a JPEG
  std::optional<PngHeader> png = {};    ///< of a PNG
};

/// Reads the header only: of a JPEG the part before the first scan, of a PNG the first 33 bytes. `name` is the name of
/// the file in messages. Throws EnvironmentError for a damaged header (with the file's name, the byte offset, what was
/// expected and what was found), for any other format, and for more than `maximum_pixels`. Any thread may call it.
ImageHeader read_image_header(std::span<const std::byte> file, const std::string& name,
                              std::uint64_t maximum_pixels = kMaxPixels);

}  // namespace libtrain::data

namespace libtrain::data::detail {

/// Codes of markers: the byte after 0xFF (ITU-T T.81, table B.1).
inline constexpr std::uint8_t kBaselineFrame = 0xC0;
inline constexpr std::uint8_t kExtendedFrame = 0xC1;
inline constexpr std::uint8_t kProgressiveFrame = 0xC2;
inline constexpr std::uint8_t kDefineHuffmanTables = 0xC4;
inline constexpr std::uint8_t kJpegExtension = 0xC8;
inline constexpr std::uint8_t kArithmeticFrame = 0xC9;
inline constexpr std::uint8_t kArithmeticProgressiveFrame = 0xCA;
inline constexpr std::uint8_t kDefineArithmeticConditioning = 0xCC;
inline constexpr std::uint8_t kFirstRestart = 0xD0;  // of eight
inline constexpr std::uint8_t kStartOfImage = 0xD8;
inline constexpr std::uint8_t kEndOfImage = 0xD9;
inline constexpr std::uint8_t kStartOfScan = 0xDA;
inline constexpr std::uint8_t kDefineQuantizationTables = 0xDB;
inline constexpr std::uint8_t kDefineRestartInterval = 0xDD;
inline constexpr std::uint8_t kApplication0 = 0xE0;
inline constexpr std::uint8_t kApplication14 = 0xEE;

/// Whether the marker is a frame header of any kind, including those that libjpeg does not decode.
bool is_frame(std::uint8_t code);

struct JpegMarker {
  std::uint8_t code = 0;
  std::size_t offset = 0;                   ///< of the 0xFF before the code in the file
  std::span<const std::byte> payload = {};  ///< after the length; empty if the marker has none
  std::size_t end() const;                  ///< the offset after the marker
};

/// Iterates over the markers of a JPEG up to the first scan; it cannot read entropy-coded data. As libjpeg, it skips
/// bytes between markers. Throws EnvironmentError if the file is too short.
class JpegMarkers {
 public:
  /// `file` and `name` must outlive it. Throws EnvironmentError unless the file starts as a JPEG.
  JpegMarkers(std::span<const std::byte> file, const std::string& name);

  JpegMarker next();

  [[noreturn]] void fail(std::size_t offset, const std::string& expected_and_found) const;

 private:
  std::size_t find_code() const;

  std::span<const std::byte> file_;
  const std::string& name_;
  std::size_t position_ = 2;
};

/// The big-endian 16-bit number at `offset` of `bytes`, which must be long enough.
inline int big_endian16(std::span<const std::byte> bytes, std::size_t offset) {
  return std::to_integer<int>(bytes[offset]) << 8 | std::to_integer<int>(bytes[offset + 1]);
}

}  // namespace libtrain::data::detail
