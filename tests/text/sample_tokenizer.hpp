#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/text/detail/byte_alphabet.hpp>

namespace libtrain::test {

/// The merges of the sample: 0 is the first.
inline const std::vector<std::string>& sample_merges() {
  static const std::vector<std::string> merges = {"l l",    "h e",   "Ġ w", "o r",     "he ll",
                                                  "hell o", "Ġw or", "l d", "Ġwor ld", "Ġ Ġ"};
  return merges;
}

/// The first id of a token that merges make; ids below are those of special tokens and bytes.
inline constexpr std::int64_t kFirstMerged = 261;

/// The tokens by id: RoBERTa's special tokens, the bytes in the order of their letters, and what the merges make.
inline std::vector<std::string> sample_tokens() {
  std::vector<std::string> tokens{"<s>", "<pad>", "</s>", "<unk>", "<mask>"};
  for (unsigned byte = 0; byte < 256; ++byte) {
    tokens.push_back(detail::letter_of_byte(static_cast<std::uint8_t>(byte)));
  }
  std::sort(tokens.begin() + 5, tokens.end());
  for (std::string merge : sample_merges()) {
    merge.erase(merge.find(' '), 1);
    tokens.push_back(merge);
  }
  return tokens;
}

inline std::string quoted(const std::string& token) {
  return token == "\"" || token == "\\" ? "\"\\" + token + '"' : '"' + token + '"';
}

inline std::string sample_vocab_json() {
  std::string json;
  std::int64_t id = 0;
  for (const std::string& token : sample_tokens()) {
    json += (json.empty() ? '{' : ',') + quoted(token) + ':' + std::to_string(id++);
  }
  return json + '}';
}

inline std::string sample_merges_txt() {
  std::string lines = "#version: 0.2\n";
  for (const std::string& merge : sample_merges()) lines += merge + '\n';
  return lines;
}

inline std::string sample_tokenizer_json() {
  std::string merges;
  for (const std::string& merge : sample_merges()) merges += (merges.empty() ? "" : ",") + quoted(merge);
  std::string added;
  for (std::string_view token : {"<s>", "<pad>", "</s>", "<unk>", "<mask>"}) {
    const std::string id = std::to_string(std::count(added.begin(), added.end(), '{'));
    added += (added.empty() ? "" : ",") + (R"({"id":)" + id) + R"(,"content":")" + std::string{token} +
             R"(","single_word":false,"lstrip":)" + (token == "<mask>" ? "true" : "false") +
             R"(,"rstrip":false,"normalized":false,"special":true})";
  }
  const std::string byte_level =
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)" + added +
         R"(],"normalizer":null,"pre_tokenizer":)" + byte_level +
         R"(,"post_processor":{"type":"RobertaProcessing","sep":["</s>",2],"cls":["<s>",0],"trim_offsets":true,)" +
         R"("add_prefix_space":false},"decoder":)" + byte_level +
         R"(,"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":"",)" +
         R"("end_of_word_suffix":"","fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":)" +
         sample_vocab_json() + R"(,"merges":[)" + merges + "]}}";
}

}  // namespace libtrain::test
