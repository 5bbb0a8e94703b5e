#pragma once

#include <string>

#include <libtrain/text/detail/tokenizer_definition.hpp>

namespace libtrain::detail {

/// What a tokenizer.json says, or vocab.json and merges.txt. Throws as read_tokenizer.
TokenizerDefinition read_tokenizer_json(const std::string& path);
TokenizerDefinition read_vocabulary_and_merges(const std::string& vocabulary, const std::string& merges);

/// What a tokenizer_config.json says of the space in front of a text; `otherwise` if it says nothing.
bool read_add_prefix_space(const std::string& path, bool otherwise);

}  // namespace libtrain::detail
