#include <libtrain/data/formats/json_walk.hpp>

#include <string>

#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

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

}  // namespace

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

}  // namespace libtrain::data::detail
