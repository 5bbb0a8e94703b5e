#include <libtrain/base/detail/protobuf_wire.hpp>

#include <bit>
#include <limits>

#include <libtrain/base/detail/little_endian.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr int kMaxNested = 16;

}  // namespace

void WireReader::fail(const std::string& expected_and_found) const {
  throw EnvironmentError(text(source_, ", byte ", offset_ + position_, " of the message: ", expected_and_found, "."));
}

std::string_view WireReader::take(std::uint64_t count) {
  const std::size_t left = message_.size() - position_;
  if (count > left) fail(text("expected ", count, " more bytes, found the end of the message after ", left));
  const auto taken = message_.substr(position_, static_cast<std::size_t>(count));
  position_ += taken.size();
  return taken;
}

std::uint64_t WireReader::varint() {
  const std::size_t begin = position_;
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<std::uint8_t>(take(1).front());
    if (shift == 63 && byte > 1) {
      position_ = begin;
      fail("expected a varint of at most 64 bits, found a longer one");
    }
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
}

std::optional<WireField> WireReader::next() {
  if (at_end()) return std::nullopt;
  const std::size_t begin = position_;
  const std::uint64_t tag = varint();
  WireField field;
  field.number = static_cast<std::uint32_t>(tag >> 3);
  field.type = static_cast<WireType>(tag & 7);
  if (tag > std::numeric_limits<std::uint32_t>::max() || field.number == 0) {
    position_ = begin;
    fail(text("expected a field number from 1 to 536870911, found ", tag >> 3));
  }
  switch (field.type) {
    case WireType::varint:
      field.value = varint();
      return field;
    case WireType::fixed64:
      field.value = load_little_endian<std::uint64_t>(take(8).data());
      return field;
    case WireType::bytes:
      field.bytes = take(varint());
      return field;
    case WireType::fixed32:
      field.value = load_little_endian<std::uint32_t>(take(4).data());
      return field;
  }
  position_ = begin;
  fail(text("expected a field of wire type 0, 1, 2 or 5, found ", tag & 7));
}

WireReader WireReader::nested(const WireField& field) const {
  if (depth_ == kMaxNested) fail(text("expected at most ", kMaxNested, " nested messages, found more"));
  const auto begin = static_cast<std::size_t>(field.bytes.data() - message_.data());
  return {field.bytes, source_, offset_ + begin, depth_ + 1};
}

void append_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}

void WireWriter::tag(std::uint32_t number, WireType type) {
  append_varint(message_, std::uint64_t{number} << 3 | static_cast<std::uint64_t>(type));
}

void WireWriter::varint(std::uint32_t number, std::uint64_t value) {
  tag(number, WireType::varint);
  append_varint(message_, value);
}

void WireWriter::bytes(std::uint32_t number, std::string_view value) {
  begin_bytes(number, value.size());
  message_ += value;
}

void WireWriter::begin_bytes(std::uint32_t number, std::uint64_t size) {
  tag(number, WireType::bytes);
  append_varint(message_, size);
}

void WireWriter::fixed32(std::uint32_t number, float value) {
  tag(number, WireType::fixed32);
  append_little_endian(message_, std::bit_cast<std::uint32_t>(value));
}

void WireWriter::fixed64(std::uint32_t number, double value) {
  tag(number, WireType::fixed64);
  append_little_endian(message_, std::bit_cast<std::uint64_t>(value));
}

}  // namespace libtrain::detail
