#include <libtrain/data/formats/detail/json_window.hpp>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/json.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::size_t kSmallestRoom = 16;
// simdjson's limit is 4 GiB; no object of an annotation file is anywhere near.
constexpr std::size_t kLargestRoom = std::size_t{1} << 30;
constexpr std::uint64_t kExcerptBytes = 32;

constexpr std::size_t kLongestKey = 4096;

std::uint64_t skip_string(JsonWindow& window, std::uint64_t offset) {
  const std::uint64_t begin = offset++;
  while (offset < window.size()) {
    const char character = window.at(offset);
    offset += character == '\\' ? 2 : 1;
    if (character == '"') return offset;
  }
  window.fail(begin, "a string that is closed");
}

std::uint64_t skip_scalar(JsonWindow& window, std::uint64_t offset) {
  const std::uint64_t begin = offset;
  while (offset < window.size()) {
    const char character = window.at(offset);
    const bool part = (character >= '0' && character <= '9') || (character >= 'a' && character <= 'z') ||
                      (character >= 'A' && character <= 'Z') || character == '-' || character == '+' ||
                      character == '.';
    if (!part) break;
    ++offset;
  }
  if (offset == begin) window.fail(begin, "a value");
  return offset;
}

// The key at `offset`, which moves behind it.
std::string read_key(JsonWindow& window, std::uint64_t& offset) {
  if (window.at_or_end(offset) != '"') window.fail(offset, "a key in quotes");
  const std::uint64_t begin = offset;
  const std::uint64_t end = skip_string(window, offset);
  if (end - begin > kLongestKey) window.fail(begin, text("a key of at most ", kLongestKey, " bytes"));
  std::string key;
  for (offset = begin + 1; offset < end - 1; ++offset) key += window.at(offset);
  offset = end;
  return key;
}

namespace ondemand = simdjson::ondemand;

// How far one window went.
struct Pass {
  enum class Outcome {
    closed,  // the array ends within the window; `next` lies behind its ']'
    done,    // all of the window up to `next` was read
    cut,     // the object at `next` does not end within the window
    larger,  // nor does the first one
  };
  Outcome outcome = Outcome::done;
  std::uint64_t next = 0;
  bool any = false;  // whether an object was read
};

void read_elements(JsonWindow& window, ondemand::array& array, const JsonObjectReader& read, Pass& pass) {
  for (auto element : array) {
    if (element.error() != simdjson::SUCCESS) throw data_fault("',' or ']' behind an object");
    ondemand::value value = element.value_unsafe();
    const char* const begin = json_begin(value);
    pass.next = window.offset_of(begin);
    ondemand::object object;
    if (value.get_object().get(object) != simdjson::SUCCESS) throw data_fault("an object", begin);
    try {
      read(object, pass.next);
    } catch (JsonFault& fault) {
      if (fault.at == nullptr && fault.kind == JsonFault::Kind::data) fault.at = begin;
      throw;
    }
    pass.any = true;
  }
}

// Reads the first `length` bytes of the window as the elements of an array.
void read_bracketed(JsonWindow& window, ondemand::parser& parser, std::size_t length, const JsonObjectReader& read,
                    Pass& pass) {
  const JsonWindow::Bracketed json{window, length};
  const std::string_view visible{json.data(), json.size()};
  if (parser.capacity() < window.room() + 2) {
    const auto error = parser.allocate(window.room() + 2);
    if (error != simdjson::SUCCESS) throw structural_fault(error, visible);
  }
  ondemand::document document;
  if (const auto error = parser.iterate(json.data(), json.size(), json.allocated()).get(document);
      error != simdjson::SUCCESS) {
    throw structural_fault(error, visible);
  }
  try {
    ondemand::array array;
    if (document.get_array().get(array) != simdjson::SUCCESS) throw JsonFault{.expected = "an array of objects"};
    read_elements(window, array, read, pass);
  } catch (JsonFault& fault) {
    if (fault.at == nullptr) fault.at = json_location(document);
    throw;
  }
  // Only the bracket that was put there comes last.
  if (const char* behind = json_location(document); behind != nullptr) {
    pass.outcome = Pass::Outcome::closed;
    pass.next = window.offset_of(behind);
  } else {
    pass.next = window.begin() + length;
  }
}

Pass read_window(JsonWindow& window, ondemand::parser& parser, const JsonObjectReader& read) {
  const std::string_view text = window.text();
  if (text.empty() || text.front() != '{') window.fail(window.begin(), "an object");
  const std::size_t last = text.rfind('}');
  if (last == std::string_view::npos) {
    if (window.reaches_end()) window.fail(window.size(), "'}'");
    return {.outcome = Pass::Outcome::larger};
  }
  Pass pass{.next = window.begin()};
  try {
    read_bracketed(window, parser, last + 1, read, pass);
  } catch (const JsonFault& fault) {
    if (fault.kind == JsonFault::Kind::data || window.reaches_end()) {
      window.fail(fault.at != nullptr ? window.offset_of(fault.at) : window.begin() + last + 1, fault.expected);
    }
    pass.outcome = pass.any ? Pass::Outcome::cut : Pass::Outcome::larger;
  }
  return pass;
}

}  // namespace

JsonWindow::JsonWindow(const File& file, std::size_t bytes)
    : file_(file),
      size_(file.size()),
      room_(std::min<std::uint64_t>(std::clamp(bytes, kSmallestRoom, kLargestRoom), size_)),
      buffer_(1 + room_ + 1) {
  load(0);
}

void JsonWindow::load(std::uint64_t offset) {
  const std::size_t length = std::min<std::uint64_t>(room_, size_ - offset);
  if (length > 0) file_.read_at(offset, std::as_writable_bytes(std::span{data(), length}));
  std::memset(data() + length, 0, PaddedBuffer::kPadding);
  begin_ = offset;
  length_ = length;
}

void JsonWindow::grow() {
  if (room_ >= kLargestRoom) {
    fail(begin_, libtrain::text("an object of at most ", kLargestRoom, " bytes"));
  }
  room_ = std::min<std::uint64_t>(2 * room_, size_);
  buffer_ = PaddedBuffer{1 + room_ + 1};
  load(begin_);
}

std::uint64_t JsonWindow::skip_space(std::uint64_t offset) {
  while (offset < size_ && is_json_space(at(offset))) ++offset;
  return offset;
}

void JsonWindow::fail(std::uint64_t offset, const std::string& expected) {
  offset = std::min(offset, size_);
  const bool inside = offset >= begin_ && offset + std::min(kExcerptBytes, size_ - offset) <= begin_ + length_;
  if (!inside) load(offset);
  const std::string found = json_excerpt(text().substr(offset - begin_, kExcerptBytes), "the end of the file");
  throw EnvironmentError(libtrain::text("JSON file '", file_.name(), "', byte offset ", offset, ": expected ", expected,
                                        ", found ", found, "."));
}

JsonWindow::Bracketed::Bracketed(JsonWindow& window, std::size_t length)
    : window_(window), length_(length), replaced_{window.data()[length], window.data()[length + 1]} {
  window_.buffer_.data()[0] = '[';
  window_.data()[length] = ']';
  // simdjson's on-demand parser looks at the byte behind the text where brackets do not match.
  window_.data()[length + 1] = '\0';
}

JsonWindow::Bracketed::~Bracketed() {
  window_.data()[length_] = replaced_[0];
  window_.data()[length_ + 1] = replaced_[1];
}

std::uint64_t skip_json_value(JsonWindow& window, std::uint64_t offset) {
  int depth = 0;
  do {
    offset = window.skip_space(offset);
    const char character = window.at_or_end(offset);
    if (character == '"') {
      offset = skip_string(window, offset);
    } else if (character == '{' || character == '[') {
      if (++depth > kDeepestJson) window.fail(offset, text("at most ", kDeepestJson, " levels"));
      ++offset;
    } else if (depth > 0 && (character == '}' || character == ']')) {
      --depth;
      ++offset;
    } else if (depth > 0 && (character == ',' || character == ':')) {
      ++offset;
    } else {
      offset = skip_scalar(window, offset);
    }
  } while (depth > 0);
  return offset;
}

std::uint64_t walk_json_object(JsonWindow& window, std::uint64_t offset, const JsonMemberReader& read) {
  if (window.at_or_end(offset) != '{') window.fail(offset, "'{'");
  offset = window.skip_space(offset + 1);
  if (window.at_or_end(offset) == '}') return offset + 1;
  for (;;) {
    const std::string key = read_key(window, offset);
    offset = window.skip_space(offset);
    if (window.at_or_end(offset) != ':') window.fail(offset, text("':' behind the key '", key, "'"));
    offset = window.skip_space(read(key, window.skip_space(offset + 1)));
    const char separator = window.at_or_end(offset);
    if (separator == '}') return offset + 1;
    if (separator != ',') window.fail(offset, text("',' or '}' behind the value of '", key, "'"));
    offset = window.skip_space(offset + 1);
  }
}

void expect_json_end(JsonWindow& window, std::uint64_t offset) {
  offset = window.skip_space(offset);
  if (offset < window.size()) window.fail(offset, "the end of the file");
}

std::uint64_t read_json_objects(JsonWindow& window, ondemand::parser& parser, std::uint64_t offset,
                                const JsonObjectReader& read) {
  offset = window.skip_space(offset);
  if (window.at_or_end(offset) == ']') return offset + 1;
  for (;;) {
    window.load(offset);
    Pass pass = read_window(window, parser, read);
    while (pass.outcome == Pass::Outcome::larger) {
      window.grow();
      pass = read_window(window, parser, read);
    }
    if (pass.outcome == Pass::Outcome::closed) return pass.next;
    offset = pass.next;
    if (pass.outcome == Pass::Outcome::cut) continue;

    offset = window.skip_space(offset);
    const char separator = window.at_or_end(offset);
    if (separator == ']') return offset + 1;
    if (separator != ',') window.fail(offset, "',' or ']' behind an object");
    offset = window.skip_space(offset + 1);
  }
}

}  // namespace libtrain::data::detail
