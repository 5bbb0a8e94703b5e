#include <libtrain/data/image/image_header.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>

#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/decode_options.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::string_view kJpegStart("\xFF\xD8\xFF", 3);
constexpr std::string_view kPngStart("\x89PNG\r\n\x1A\n", 8);

constexpr std::uint8_t kPrefix = 0xFF;
constexpr std::uint8_t kTemporary = 0x01;
constexpr std::size_t kLengthBytes = 2;
constexpr std::size_t kMarkerBytes = 2 + kLengthBytes;  // 0xFF, the code, the length
constexpr std::size_t kFrameBytes = 6;                  // of a frame header without its components
constexpr std::size_t kComponentBytes = 3;

constexpr std::size_t kPngHeaderBytes = 33;  // signature, length, type, 13 bytes, checksum
constexpr std::uint32_t kPngChunkBytes = 13;

bool stands_alone(std::uint8_t code) {
  return code == kTemporary || (code >= kFirstRestart && code <= kEndOfImage);
}

bool starts_with(std::span<const std::byte> bytes, std::string_view start) {
  return bytes.size() >= start.size() && std::memcmp(bytes.data(), start.data(), start.size()) == 0;
}

int byte_at(std::span<const std::byte> bytes, std::size_t offset) {
  return std::to_integer<int>(bytes[offset]);
}

std::uint32_t big_endian32(std::span<const std::byte> bytes, std::size_t offset) {
  return static_cast<std::uint32_t>(big_endian16(bytes, offset)) << 16 |
         static_cast<std::uint32_t>(big_endian16(bytes, offset + 2));
}

}  // namespace

bool is_frame(std::uint8_t code) {
  return code >= 0xC0 && code <= 0xCF && code != kDefineHuffmanTables && code != kJpegExtension &&
         code != kDefineArithmeticConditioning;
}

std::size_t JpegMarker::end() const {
  return offset + 2 + (stands_alone(code) ? 0 : kLengthBytes + payload.size());
}

JpegMarkers::JpegMarkers(std::span<const std::byte> file, const std::string& name) : file_(file), name_(name) {
  if (file.size() < 2) fail(file.size(), "expected 0xffd8, the start of a JPEG, found the end of the file");
  const int start = big_endian16(file, 0);
  if (start != (kPrefix << 8 | kStartOfImage)) {
    fail(0, text("expected 0xffd8, the start of a JPEG, found ",
                 libtrain::detail::hexadecimal(static_cast<std::uint32_t>(start))));
  }
}

JpegMarker JpegMarkers::next() {
  const std::size_t place = find_code();
  JpegMarker marker{.code = std::to_integer<std::uint8_t>(file_[place]), .offset = place - 1};
  if (!stands_alone(marker.code)) {
    const std::size_t begin = place + 1;
    const std::size_t left = file_.size() - begin;
    if (left < kLengthBytes) fail(file_.size(), "expected the length of a marker segment, found the end of the file");
    const auto length = static_cast<std::size_t>(big_endian16(file_, begin));
    if (length < kLengthBytes) fail(begin, text("expected a marker segment of at least 2 bytes, found ", length));
    if (length > left) {
      fail(file_.size(), text("expected a marker segment of ", length, " bytes from byte offset ", begin,
                              " on, found the end of the file"));
    }
    marker.payload = file_.subspan(begin + kLengthBytes, length - kLengthBytes);
  }
  position_ = marker.end();
  return marker;
}

void JpegMarkers::fail(std::size_t offset, const std::string& expected_and_found) const {
  fail_image("JPEG", name_, offset, expected_and_found);
}

// A marker is one 0xFF or more, then a code other than 0.
std::size_t JpegMarkers::find_code() const {
  std::size_t place = position_;
  for (;;) {
    while (place < file_.size() && std::to_integer<std::uint8_t>(file_[place]) != kPrefix) ++place;
    while (place < file_.size() && std::to_integer<std::uint8_t>(file_[place]) == kPrefix) ++place;
    if (place >= file_.size()) fail(file_.size(), "expected a marker, found the end of the file");
    if (std::to_integer<int>(file_[place]) != 0) return place;
    ++place;
  }
}

namespace {

class JpegHeaderParser {
 public:
  JpegHeaderParser(std::span<const std::byte> file, const std::string& name) : markers_(file, name) {}

  JpegHeader parse() {
    for (;;) {
      const JpegMarker marker = markers_.next();
      if (is_frame(marker.code)) {
        read_frame(marker);
      } else if (marker.code == kStartOfScan) {
        read_scan(marker);
        return header_;
      } else {
        read_other(marker);
      }
    }
  }

 private:
  void read_frame(const JpegMarker& marker) {
    if (header_.component_count != 0) markers_.fail(marker.offset, "expected one frame header, found a second one");
    read_process(marker);
    const auto payload = marker.payload;
    const std::size_t begin = marker.offset + kMarkerBytes;
    if (payload.size() < kFrameBytes) {
      markers_.fail(begin, text("expected a frame header of at least 6 bytes, found ", payload.size()));
    }
    header_.precision = byte_at(payload, 0);
    header_.height = big_endian16(payload, 1);
    header_.width = big_endian16(payload, 3);
    const int count = byte_at(payload, 5);
    if (header_.height == 0 || header_.width == 0) {
      markers_.fail(begin + 1,
                    text("expected a height and a width above 0, found ", header_.height, " x ", header_.width));
    }
    if (count < 1 || count > 4) markers_.fail(begin + 5, text("expected 1 to 4 components, found ", count));
    const std::size_t expected = kFrameBytes + kComponentBytes * static_cast<std::size_t>(count);
    if (payload.size() != expected) {
      markers_.fail(begin, text("expected a frame header of ", expected, " bytes for ", count, " components, found ",
                                payload.size()));
    }
    for (int i = 0; i < count; ++i) read_component(payload, begin, static_cast<std::size_t>(i));
    header_.component_count = count;
    header_.frame_offset = marker.offset;
  }

  void read_process(const JpegMarker& marker) {
    header_.progressive = marker.code == kProgressiveFrame || marker.code == kArithmeticProgressiveFrame;
    header_.arithmetic = marker.code == kArithmeticFrame || marker.code == kArithmeticProgressiveFrame;
    if (header_.progressive || header_.arithmetic) return;
    if (marker.code == kBaselineFrame || marker.code == kExtendedFrame) return;
    markers_.fail(marker.offset, text("expected a sequential or progressive frame, found the frame type ",
                                      libtrain::detail::hexadecimal(marker.code), " (lossless or hierarchical)"));
  }

  void read_component(std::span<const std::byte> payload, std::size_t begin, std::size_t index) {
    const std::size_t place = kFrameBytes + kComponentBytes * index;
    const int sampling = byte_at(payload, place + 1);
    JpegComponent& component = header_.components.at(index);
    component = {.identifier = byte_at(payload, place),
                 .horizontal_sampling = sampling >> 4,
                 .vertical_sampling = sampling & 15};
    const auto valid = [](int factor) { return factor >= 1 && factor <= 4; };
    if (valid(component.horizontal_sampling) && valid(component.vertical_sampling)) return;
    markers_.fail(begin + place + 1, text("expected sampling factors from 1 to 4, found ",
                                          component.horizontal_sampling, " x ", component.vertical_sampling));
  }

  void read_scan(const JpegMarker& marker) {
    if (header_.component_count == 0) markers_.fail(marker.offset, "expected a frame header before the first scan");
    const std::size_t begin = marker.offset + kMarkerBytes;
    const int count = marker.payload.empty() ? 0 : byte_at(marker.payload, 0);
    if (count < 1 || count > header_.component_count) {
      markers_.fail(begin, text("expected a scan of 1 to ", header_.component_count, " components, found ", count));
    }
    const std::size_t expected = 4 + 2 * static_cast<std::size_t>(count);
    if (marker.payload.size() != expected) {
      markers_.fail(begin, text("expected a scan header of ", expected, " bytes for ", count, " components, found ",
                                marker.payload.size()));
    }
    header_.first_scan_components = count;
    header_.scan_offset = marker.end();
  }

  void read_other(const JpegMarker& marker) {
    const auto payload = marker.payload;
    if (marker.code == kEndOfImage) markers_.fail(marker.offset, "expected a scan, found the end of the image");
    if (marker.code == kDefineRestartInterval) {
      if (payload.size() != 2) {
        markers_.fail(marker.offset + kMarkerBytes,
                      text("expected a restart interval of 2 bytes, found ", payload.size()));
      }
      header_.restart_interval = big_endian16(payload, 0);
    }
    if (marker.code == kApplication0 && starts_with(payload, {"JFIF\0", 5})) header_.jfif = true;
    if (marker.code == kApplication14 && payload.size() >= 12 && starts_with(payload, "Adobe")) {
      header_.adobe_transform = byte_at(payload, 11);
    }
  }

  JpegMarkers markers_;
  JpegHeader header_ = {};
};

bool valid_depth(PngColor color, int depth) {
  if (color == PngColor::grey) return depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16;
  if (color == PngColor::palette) return depth == 1 || depth == 2 || depth == 4 || depth == 8;
  return depth == 8 || depth == 16;
}

}  // namespace

}  // namespace libtrain::data::detail

namespace libtrain::data {

ImageFormat sniff_image_format(std::span<const std::byte> file) {
  if (detail::starts_with(file, detail::kJpegStart)) return ImageFormat::jpeg;
  if (detail::starts_with(file, detail::kPngStart)) return ImageFormat::png;
  return ImageFormat::unknown;
}

int JpegHeader::maximum_horizontal_sampling() const {
  return std::ranges::max(components, {}, &JpegComponent::horizontal_sampling).horizontal_sampling;
}

int JpegHeader::maximum_vertical_sampling() const {
  return std::ranges::max(components, {}, &JpegComponent::vertical_sampling).vertical_sampling;
}

int PngHeader::channels() const {
  const bool has_color = color == PngColor::rgb || color == PngColor::rgb_alpha;
  const bool has_alpha = color == PngColor::grey_alpha || color == PngColor::rgb_alpha;
  return (has_color ? 3 : 1) + (has_alpha ? 1 : 0);
}

JpegHeader parse_jpeg_header(std::span<const std::byte> file, const std::string& name) {
  return detail::JpegHeaderParser(file, name).parse();
}

PngHeader parse_png_header(std::span<const std::byte> file, const std::string& name) {
  using namespace detail;
  const auto fail = [&name](std::size_t offset, const std::string& expected_and_found) {
    fail_image("PNG", name, offset, expected_and_found);
  };
  if (!starts_with(file, kPngStart)) fail(0, "expected the signature of a PNG, found something else");
  if (file.size() < kPngHeaderBytes) {
    fail(file.size(), "expected a header of 33 bytes, found the end of the file (the file is truncated)");
  }
  if (big_endian32(file, 8) != kPngChunkBytes || !starts_with(file.subspan(12), "IHDR")) {
    fail(8, "expected a chunk IHDR of 13 bytes, found something else");
  }
  const std::uint32_t width = big_endian32(file, 16);
  const std::uint32_t height = big_endian32(file, 20);
  constexpr std::uint32_t kMax = std::numeric_limits<std::int32_t>::max();
  if (width < 1 || width > kMax || height < 1 || height > kMax) {
    fail(16, text("expected a width and a height from 1 to 2147483647, found ", width, " x ", height));
  }
  const int depth = byte_at(file, 24);
  const int color = byte_at(file, 25);
  const bool known = color == 0 || color == 2 || color == 3 || color == 4 || color == 6;
  if (!known || !valid_depth(static_cast<PngColor>(color), depth)) {
    fail(24, text("expected a bit depth and a color type that go together, found ", depth, " and ", color));
  }
  const int interlace = byte_at(file, 28);
  if (byte_at(file, 26) != 0 || byte_at(file, 27) != 0 || interlace > 1) {
    fail(26, text("expected compression 0, filter 0 and interlace 0 or 1, found ", byte_at(file, 26), ", ",
                  byte_at(file, 27), " and ", interlace));
  }
  return {.width = static_cast<int>(width),
          .height = static_cast<int>(height),
          .bit_depth = depth,
          .color = static_cast<PngColor>(color),
          .interlaced = interlace == 1};
}

ImageHeader read_image_header(std::span<const std::byte> file, const std::string& name, std::uint64_t maximum_pixels) {
  ImageHeader header{.format = sniff_image_format(file)};
  const char* format = "JPEG";
  if (header.format == ImageFormat::jpeg) {
    const JpegHeader& jpeg = header.jpeg.emplace(parse_jpeg_header(file, name));
    header.width = jpeg.width;
    header.height = jpeg.height;
    header.channels = jpeg.component_count;
    header.bit_depth = jpeg.precision;
    header.progressive = jpeg.progressive;
  } else if (header.format == ImageFormat::png) {
    format = "PNG";
    const PngHeader& png = header.png.emplace(parse_png_header(file, name));
    header.width = png.width;
    header.height = png.height;
    header.channels = png.color == PngColor::palette ? 3 : png.channels();
    header.bit_depth = png.bit_depth;
    header.progressive = png.interlaced;
  } else {
    const std::span first(reinterpret_cast<const std::uint8_t*>(file.data()), std::min<std::size_t>(file.size(), 4));
    detail::fail_image("image", name, 0,
                       text("expected the first bytes of a JPEG or a PNG, found ",
                            file.empty() ? "the end of the file" : "0x" + libtrain::detail::hexadecimal(first)));
  }
  detail::check_pixels(format, {.name = name, .maximum_pixels = maximum_pixels},
                       static_cast<std::uint64_t>(header.width), static_cast<std::uint64_t>(header.height));
  return header;
}

}  // namespace libtrain::data
