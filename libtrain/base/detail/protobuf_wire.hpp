#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace libtrain::detail {

/// The encoding of a field's value. Groups (3 and 4), long deprecated, are not supported.
enum class WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

struct WireField {
  std::uint32_t number = 0;
  WireType type = WireType::varint;
  std::uint64_t value = 0;      ///< value of a varint, fixed64 or fixed32 field
  std::string_view bytes = {};  ///< content of a bytes field: a string, a message or packed numbers; in the message
};

/// Reads a message of protocol buffers field by field (protobuf.dev, "Encoding"), without knowing its type: the caller
/// ignores unknown fields. It copies nothing and allocates no memory. Used by one thread at a time.
///
/// All functions throw EnvironmentError, which names `source`, the byte offset in the outermost message, what was
/// expected and what was found.
class WireReader {
 public:
  /// `message` and `source`, the beginning of every error message, must outlive the reader.
  WireReader(std::string_view message, std::string_view source) : WireReader(message, source, 0, 0) {}

  /// The next field; std::nullopt at the end.
  std::optional<WireField> next();

  /// A reader of the message or the packed numbers in a field that next() returned. At most 16 may be nested.
  WireReader nested(const WireField& field) const;

  bool at_end() const { return position_ == message_.size(); }

  /// The next of several packed numbers. A varint of more than 64 bits is an error.
  std::uint64_t varint();

  /// Throws an error of this reader with its current position.
  [[noreturn]] void fail(const std::string& expected_and_found) const;

 private:
  WireReader(std::string_view message, std::string_view source, std::size_t offset, int depth)
      : message_(message), source_(source), offset_(offset), depth_(depth) {}

  std::string_view take(std::uint64_t count);

  std::string_view message_;
  std::string_view source_;
  std::size_t offset_;  // of the message in the outermost one
  std::size_t position_ = 0;
  int depth_;
};

/// Writes a message of protocol buffers, with fields in the order of the calls. Field numbers are 1 to 2^29 - 1.
class WireWriter {
 public:
  void varint(std::uint32_t number, std::uint64_t value);

  /// A string, a message or packed numbers.
  void bytes(std::uint32_t number, std::string_view value);

  /// The same up to the content, `size` bytes that the caller puts behind the message: they may be too many to copy.
  void begin_bytes(std::uint32_t number, std::uint64_t size);

  /// The fields `float` and `double`.
  void fixed32(std::uint32_t number, float value);
  void fixed64(std::uint32_t number, double value);

  const std::string& message() const { return message_; }
  std::string take() { return std::move(message_); }

 private:
  void tag(std::uint32_t number, WireType type);

  std::string message_;
};

/// Appends a packed number: `value` in groups of 7 bits, the least significant first.
void append_varint(std::string& to, std::uint64_t value);

}  // namespace libtrain::detail
