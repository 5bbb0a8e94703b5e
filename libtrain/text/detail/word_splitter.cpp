#include <libtrain/text/detail/word_splitter.hpp>

#include <array>
#include <cstdint>
#include <new>
#include <string>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/text/detail/utf8.hpp>

namespace libtrain::detail {

namespace {

// Letters and numbers that Unicode 15, 15.1 and 16 added to version 14 (the Unicode Character Database's
// DerivedGeneralCategory.txt and DerivedAge.txt).
constexpr const char* kNewerLetters =
    R"(\x{1c89}-\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d65})"
    R"(\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{1123f}-\x{11240}\x{11380}-\x{11389}\x{1138b}\x{1138e})"
    R"(\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10})"
    R"(\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d})"
    R"(\x{16d40}-\x{16d6c}\x{18cff}\x{1b132}\x{1b155}\x{1df25}-\x{1df2a}\x{1e030}-\x{1e06d})"
    R"(\x{1e4d0}-\x{1e4eb}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
constexpr const char* kNewerNumbers =
    R"(\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59}\x{16130}-\x{16139})"
    R"(\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1d2c0}-\x{1d2d3}\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})";

std::string pattern_text() {
  const std::string letters = text(R"(\p{L})", kNewerLetters);
  const std::string numbers = text(R"(\p{N})", kNewerNumbers);
  return text("'(?:[stmd]|re|ve|ll)| ?[", letters, "]++| ?[", numbers, R"(]++| ?[^\p{White_Space})", letters, numbers,
              R"(]++|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+)");
}

pcre2_code* compile(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, &error, &offset, nullptr);
  if (code == nullptr) {
    std::array<char, 256> message{};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message.data()), message.size());
    throw EnvironmentError(text("PCRE2 refuses a pattern at its byte ", offset, ": ", message.data(),
                                ". Install PCRE2 10.40 or later, with Unicode."));
  }
  // Where memory cannot be made executable, the pattern is interpreted.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return code;
}

enum class Class : std::uint8_t { letter, number, space, other, beyond_ascii };

constexpr std::array<Class, 256> classes_of_bytes() {
  std::array<Class, 256> classes{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
    const bool is_space = byte == ' ' || (byte >= '\t' && byte <= '\r');
    classes[byte] = byte >= 0x80                 ? Class::beyond_ascii
                    : is_letter                  ? Class::letter
                    : byte >= '0' && byte <= '9' ? Class::number
                    : is_space                   ? Class::space
                                                 : Class::other;
  }
  return classes;
}

constexpr std::array<Class, 256> kClasses = classes_of_bytes();

Class class_at(std::string_view text, std::size_t at) {
  return kClasses[static_cast<unsigned char>(text[at])];
}

// The end of the characters of one class from `at` on.
std::size_t run_end(std::string_view text, std::size_t at, Class of) {
  while (at < text.size() && class_at(text, at) == of) ++at;
  return at;
}

bool is_beyond_ascii(std::string_view text, std::size_t at) {
  return at < text.size() && class_at(text, at) == Class::beyond_ascii;
}

constexpr std::size_t kUnknown = 0;

// The end of 's, 't, 'm, 'd, 're, 've or 'll.
std::size_t contraction_end(std::string_view text, std::size_t begin) {
  if (begin + 1 >= text.size()) return kUnknown;
  const char first = text[begin + 1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
  if (begin + 2 >= text.size()) return kUnknown;
  const char second = text[begin + 2];
  const bool is_one = (first == 'l' && second == 'l') || ((first == 'r' || first == 'v') && second == 'e');
  return is_one ? begin + 3 : kUnknown;
}

// White space leaves its last character to the word that follows, unless there is no other.
std::size_t space_end(std::string_view text, std::size_t begin) {
  const std::size_t end = run_end(text, begin, Class::space);
  if (is_beyond_ascii(text, end)) return kUnknown;
  return end == text.size() || end == begin + 1 ? end : end - 1;
}

// The end of a word, if ASCII alone decides it.
std::size_t ascii_word_end(std::string_view text, std::size_t begin) {
  std::size_t at = begin;
  if (text[at] == ' ' && at + 1 < text.size()) ++at;
  const Class first = class_at(text, at);
  if (first == Class::space) return space_end(text, begin);
  if (first == Class::beyond_ascii) return kUnknown;
  if (text[begin] == '\'') {
    if (const std::size_t end = contraction_end(text, begin); end != kUnknown) return end;
  }
  const std::size_t end = run_end(text, at, first);
  return is_beyond_ascii(text, end) ? kUnknown : end;
}

bool has_word_character(std::string_view character) {
  static const struct Pattern {
    pcre2_code* code = compile(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}])");
    ~Pattern() { pcre2_code_free(code); }
  } pattern;
  const WordSplitter::Matches matches{pcre2_match_data_create_from_pattern(pattern.code, nullptr)};
  if (!matches) throw std::bad_alloc();
  return pcre2_match(pattern.code, reinterpret_cast<PCRE2_SPTR>(character.data()), character.size(), 0,
                     PCRE2_NO_UTF_CHECK, matches.get(), nullptr) > 0;
}

}  // namespace

void WordSplitter::FreeMatches::operator()(pcre2_real_match_data_8* matches) const {
  pcre2_match_data_free(matches);
}

void WordSplitter::FreePattern::operator()(pcre2_real_code_8* pattern) const {
  pcre2_code_free(pattern);
}

WordSplitter::WordSplitter() : pattern_(compile(pattern_text())) {}

WordSplitter::Matches WordSplitter::make_matches() const {
  Matches matches{pcre2_match_data_create(1, nullptr)};
  if (!matches) throw std::bad_alloc();
  return matches;
}

std::size_t WordSplitter::word_end(std::string_view text, std::size_t begin, const Matches& matches) const {
  const std::size_t end = ascii_word_end(text, begin);
  return end != kUnknown ? end : matched_word_end(text, begin, matches);
}

std::size_t WordSplitter::matched_word_end(std::string_view text, std::size_t begin, const Matches& matches) const {
  const int found = pcre2_match(pattern_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), begin,
                                PCRE2_NO_UTF_CHECK, matches.get(), nullptr);
  const std::size_t end = found > 0 ? pcre2_get_ovector_pointer(matches.get())[1] : begin;
  if (end > begin) return end;
  // Every character is in one of the classes, so that only a lack of memory is left.
  throw EnvironmentError(libtrain::text("PCRE2 failed with code ", found, " at byte ", begin, " of a text of ",
                                        text.size(), " bytes. Free memory, or split the text."));
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && has_word_character(text.substr(character_begin(text, text.size() - 1)));
}

bool begins_with_word(std::string_view text) {
  return !text.empty() && has_word_character(text.substr(0, character_end(text, 1)));
}

}  // namespace libtrain::detail
