// Encodes texts for tokenizer_peer_test.py.
//
//   tokenizer_program FOLDER < TEXTS
//
// Each line of TEXTS is a limit of tokens or -, then 1 for special tokens or 0, then a text in hexadecimal or -, then
// for a pair another one. Each is answered by a line of JSON: ids, offsets in bytes, what truncated, where the second
// text begins, and the ids decoded, in hexadecimal, without and with special tokens.

#include <cstdint>
#include <iostream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>

#include <libtrain/text/tokenizer.hpp>

#include <tests/support/run_program.hpp>

namespace lt = libtrain;

namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

std::string from_hexadecimal(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(16 * kDigits.find(digits[i]) + kDigits.find(digits[i + 1]));
  }
  return bytes;
}

std::string to_hexadecimal(std::string_view bytes) {
  std::string digits;
  for (const char byte : bytes) {
    digits += kDigits[static_cast<unsigned char>(byte) / 16];
    digits += kDigits[static_cast<unsigned char>(byte) % 16];
  }
  return digits;
}

lt::Encoding encode(const lt::Tokenizer& tokenizer, const std::string& line) {
  std::istringstream words(line);
  std::string limit;
  std::string special;
  std::string first;
  std::string second;
  words >> limit >> special >> first;
  lt::EncodeOptions options{.special_tokens = special == "1", .offsets = true};
  if (limit != "-") options.max_tokens = std::stoull(limit);
  if (!(words >> second)) return tokenizer.encode(from_hexadecimal(first), options);
  return tokenizer.encode_pair(from_hexadecimal(first), from_hexadecimal(second), options);
}

void answer(const lt::Tokenizer& tokenizer, const lt::Encoding& encoding) {
  std::cout << R"({"ids":[)";
  const char* comma = "";
  for (const auto id : encoding.ids) {
    std::cout << comma << id;
    comma = ",";
  }
  std::cout << R"(],"offsets":[)";
  comma = "";
  for (const auto& range : encoding.offsets) {
    std::cout << comma << '[' << range.begin << ',' << range.end << ']';
    comma = ",";
  }
  std::cout << R"(],"second":)" << encoding.second_begin << R"(,"truncated":)"
            << (encoding.truncated ? "true" : "false") << R"(,"text":")"
            << to_hexadecimal(tokenizer.decode(encoding.ids)) << R"(","whole_text":")"
            << to_hexadecimal(tokenizer.decode(encoding.ids, {.special_tokens = true})) << "\"}\n";
}

}  // namespace

int main(int, char** argv) {
  return lt::test::run_program([&] {
    const lt::Tokenizer tokenizer = lt::read_tokenizer(argv[1]);
    for (std::string line; std::getline(std::cin, line);) answer(tokenizer, encode(tokenizer, line));
  });
}
