#include <libtrain/text/detail/utf8.hpp>

#include <algorithm>
#include <array>

namespace libtrain::detail {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

unsigned byte_of(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

bool is_continuation(std::string_view text, std::size_t at) {
  return (byte_of(text, at) & 0xc0U) == 0x80U;
}

struct Sequence {
  std::size_t length = 1;
  bool is_valid = false;
};

// The character at a position, or the longest beginning of one that is cut there; other bytes stand alone.
Sequence sequence_at(std::string_view text, std::size_t at) {
  const unsigned lead = byte_of(text, at);
  if (lead < 0x80) return {1, true};
  if (lead < 0xc2 || lead > 0xf4) return {1, false};
  const std::size_t full = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  unsigned lowest = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  unsigned highest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (std::size_t length = 1; length < full; ++length) {
    if (at + length == text.size()) return {length, false};
    const unsigned next = byte_of(text, at + length);
    if (next < lowest || next > highest) return {length, false};
    lowest = 0x80;
    highest = 0xbf;
  }
  return {full, true};
}

// Calls visit(position, sequence) for the text from beginning to end.
template <typename Visit>
void for_each_sequence(std::string_view text, const Visit& visit) {
  for (std::size_t at = 0; at < text.size();) {
    const Sequence sequence = sequence_at(text, at);
    visit(at, sequence);
    at += sequence.length;
  }
}

// Of the characters with White_Space, those that are not ASCII have two or three bytes.
bool is_white_space(std::string_view character) {
  static constexpr std::array<std::string_view, 25> kAll = {
      "\t",           "\n",           "\v",           "\f",           "\r",           " ",
      "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82",
      "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88",
      "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f",
      "\xe3\x80\x80"};
  return std::ranges::find(kAll, character) != kAll.end();
}

}  // namespace

RepairedText repair_utf8(std::string_view text) {
  RepairedText repaired;
  for_each_sequence(text, [&](std::size_t at, Sequence sequence) {
    const std::string_view bytes = sequence.is_valid ? text.substr(at, sequence.length) : kReplacement;
    repaired.text += bytes;
    // Only the first byte of a character, and where the next one begins, are ever looked up.
    for (std::size_t i = 0; i < bytes.size(); ++i) repaired.origins.push_back(at);
  });
  repaired.origins.push_back(text.size());
  return repaired;
}

std::size_t repaired_size(std::string_view text) {
  std::size_t size = 0;
  for_each_sequence(
      text, [&](std::size_t, Sequence sequence) { size += sequence.is_valid ? sequence.length : kReplacement.size(); });
  return size;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string replaced;
  replaced.reserve(text.size());
  for_each_sequence(text, [&](std::size_t at, Sequence sequence) {
    replaced += sequence.is_valid ? text.substr(at, sequence.length) : kReplacement;
  });
  return replaced;
}

std::size_t character_begin(std::string_view text, std::size_t at) {
  while (at > 0 && at < text.size() && is_continuation(text, at)) --at;
  return at;
}

std::size_t character_end(std::string_view text, std::size_t at) {
  while (at < text.size() && is_continuation(text, at)) ++at;
  return at;
}

std::size_t white_space_at_end(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0) {
    const std::size_t last = character_begin(text, begin - 1);
    if (!is_white_space(text.substr(last, begin - last))) break;
    begin = last;
  }
  return text.size() - begin;
}

std::size_t white_space_at_begin(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size()) {
    const std::size_t next = character_end(text, end + 1);
    if (!is_white_space(text.substr(end, next - end))) break;
    end = next;
  }
  return end;
}

}  // namespace libtrain::detail
