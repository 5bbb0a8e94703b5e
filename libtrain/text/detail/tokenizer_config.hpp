#pragma once

#include <string>

#include <libtrain/text/detail/tokenizer_definition.hpp>

namespace libtrain::detail {

// Of the files in a folder beside those of the definition, which transformers applies, too.

/// What a tokenizer_config.json says of the space in front of a text; `otherwise` if it says nothing.
bool read_add_prefix_space(const std::string& path, bool otherwise);

/// Which flags of an added token must be the same everywhere. `normalized` only says which one of tokens that overlap
/// is looked for first, so that it is not known, and changes nothing, for the tokens that a vocab.json alone gives.
enum class ComparedFlags { all, all_but_normalized };

/// Throws EnvironmentError, with the file and the token, if the tokenizer_config.json, added_tokens.json or
/// special_tokens_map.json of `folder`, as far as they exist, name other added tokens than the definition.
void require_same_tokens(const std::string& folder, const TokenizerDefinition& definition, ComparedFlags compared);

}  // namespace libtrain::detail
