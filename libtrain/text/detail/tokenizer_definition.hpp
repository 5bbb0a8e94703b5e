#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace libtrain::detail {

/// A token that is looked for in the text before it is split into words.
struct AddedToken {
  std::uint32_t id = 0;
  std::string content = {};
  bool single_word = false;  ///< not within a word
  bool lstrip = false;       ///< takes the white space before it along
  bool rstrip = false;       ///< likewise after it
  bool normalized = false;   ///< looked for after those without it, in what they left
  bool special = false;      ///< left out by decode
  bool in_model = true;      ///< also in the vocabulary of the BPE model
};

/// Which ids and texts an encoding is made of, in this order.
struct TemplatePiece {
  enum class Kind { first_text, second_text, special };
  Kind kind = Kind::special;
  std::vector<std::int64_t> ids = {};  ///< of a special piece
};

/// What the files of a tokenizer say.
struct TokenizerDefinition {
  static constexpr std::uint32_t kIds = std::uint32_t{1} << 22;  ///< ids are below

  std::vector<std::string> tokens = {};  ///< by id, in vocab.json's spelling; empty: no token has the id
  std::vector<std::pair<std::uint32_t, std::uint32_t>> merges = {};  ///< the first is applied first
  std::vector<AddedToken> added_tokens = {};
  bool add_prefix_space = false;
  bool trim_offsets = false;
  bool trim_keeps_first_space = false;  ///< which add_prefix_space has added
  std::vector<TemplatePiece> single = {{.kind = TemplatePiece::Kind::first_text}};
  std::vector<TemplatePiece> pair = {{.kind = TemplatePiece::Kind::first_text},
                                     {.kind = TemplatePiece::Kind::second_text}};
  std::optional<std::size_t> max_tokens = {};
  std::string post_processor = "null";  ///< the JSON that the three members before stand for
};

}  // namespace libtrain::detail
