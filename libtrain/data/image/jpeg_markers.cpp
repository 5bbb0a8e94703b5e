#include <libtrain/data/image/jpeg_markers.hpp>

#include <libtrain/base/hexadecimal.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/image_error.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::uint8_t kPrefix = 0xFF;
constexpr std::uint8_t kTemporary = 0x01;
constexpr std::size_t kLengthBytes = 2;

bool stands_alone(std::uint8_t code) {
  return code == kTemporary || (code >= kFirstRestart && code <= kEndOfImage);
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
    fail(0, text("expected 0xffd8, the start of a JPEG, found ", hexadecimal(static_cast<std::uint32_t>(start))));
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

}  // namespace libtrain::data::detail
