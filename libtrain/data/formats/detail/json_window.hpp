#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <simdjson.h>

#include <libtrain/data/formats/detail/file_buffer.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data::detail {

/// A long JSON file seen through a window that moves along it: all that is in memory. One thread uses it.
class JsonWindow {
 public:
  /// `file` must live as long as the window.
  JsonWindow(const File& file, std::size_t bytes);

  JsonWindow(const JsonWindow&) = delete;  // positions in its buffer are handed out
  JsonWindow& operator=(const JsonWindow&) = delete;

  /// Bytes of the file.
  std::uint64_t size() const { return size_; }

  /// Moves the window so that it begins at `offset`, at most size().
  void load(std::uint64_t offset);

  /// Doubles the window where it stands. Throws EnvironmentError where that is more than makes sense for one object.
  void grow();

  std::uint64_t begin() const { return begin_; }
  std::string_view text() const { return {data(), length_}; }
  bool reaches_end() const { return begin_ + length_ == size_; }

  /// How many bytes fit in.
  std::size_t room() const { return room_; }

  /// The byte at `offset`, which must be below size(). Moves the window where it lies outside.
  char at(std::uint64_t offset) {
    if (offset < begin_ || offset - begin_ >= length_) load(offset);
    return data()[offset - begin_];
  }

  /// The byte at `offset`, or '\0' at the end of the file.
  char at_or_end(std::uint64_t offset) { return offset < size_ ? at(offset) : '\0'; }

  /// The offset of the first byte from `offset` on that is not white space, or size().
  std::uint64_t skip_space(std::uint64_t offset);

  /// The offset of a place in text().
  std::uint64_t offset_of(const char* place) const {
    return place <= data() ? begin_ : begin_ + static_cast<std::uint64_t>(place - data());
  }

  /// Throws EnvironmentError: the file, the byte offset, what was expected, and what is there.
  [[noreturn]] void fail(std::uint64_t offset, const std::string& expected);

  /// "[" + the first `length` bytes of the window + "]", in place, for as long as this object lives.
  class Bracketed {
   public:
    Bracketed(JsonWindow& window, std::size_t length);
    ~Bracketed();
    Bracketed(const Bracketed&) = delete;  // restores what it replaced
    Bracketed& operator=(const Bracketed&) = delete;

    const char* data() const { return window_.buffer_.data(); }
    std::size_t size() const { return length_ + 2; }
    std::size_t allocated() const { return window_.buffer_.allocated(); }

   private:
    JsonWindow& window_;
    std::size_t length_;
    std::array<char, 2> replaced_;
  };

 private:
  // A byte in front of the text and one behind it are for brackets.
  char* data() { return buffer_.data() + 1; }
  const char* data() const { return buffer_.data() + 1; }

  const File& file_;
  std::uint64_t size_;
  std::size_t room_ = 0;
  PaddedBuffer buffer_;
  std::uint64_t begin_ = 0;
  std::size_t length_ = 0;
};

/// Nested deeper than this, JSON is refused.
inline constexpr int kDeepestJson = 1024;

/// Returns the offset behind the JSON value at `offset`. What is skipped is checked for no more than quotes that close
/// and for as many closing brackets as opening ones. Throws EnvironmentError.
std::uint64_t skip_json_value(JsonWindow& window, std::uint64_t offset);

/// Reads the value that begins at `offset`, if it wants to, and returns the offset behind it.
using JsonMemberReader = std::function<std::uint64_t(std::string_view key, std::uint64_t offset)>;

/// Calls read(key, offset of its value) for the members of the object at `offset`, and returns the offset behind it.
/// Keys are as they stand in the file, escapes unresolved. Throws EnvironmentError where the object is not well formed.
std::uint64_t walk_json_object(JsonWindow& window, std::uint64_t offset, const JsonMemberReader& read);

/// Throws EnvironmentError unless there is only white space from `offset` on.
void expect_json_end(JsonWindow& window, std::uint64_t offset);

/// Reads one object, whose '{' lies at byte `offset` of the file, to its end. Throws JsonFault where it cannot; then it
/// must leave nothing of the object behind, for it may be called with the same object again.
using JsonObjectReader = std::function<void(simdjson::ondemand::object& object, std::uint64_t offset)>;

/// Reads the array of objects whose '[' lies in front of `offset`, and returns the offset behind its ']' (and behind
/// white space that may follow).
///
/// The window is filled from the present object on and cut behind its last '}'. simdjson sees that as an array. Where
/// the '}' was not the end of an object of the array (it may belong to a nested one or to a string), simdjson finds a
/// bracket or a quote missing: objects read before are kept, and the next window begins at the one that was cut. Where
/// that is the first one the window is doubled, at most to the rest of the file; then the fault is a real one.
/// Throws EnvironmentError with file and byte offset.
std::uint64_t read_json_objects(JsonWindow& window, simdjson::ondemand::parser& parser, std::uint64_t offset,
                                const JsonObjectReader& read);

}  // namespace libtrain::data::detail
