#pragma once

#include <string>
#include <vector>

#include <libtrain/text/detail/json_place.hpp>
#include <libtrain/text/detail/tokenizer_definition.hpp>

namespace libtrain::detail {

/// Reads the `post_processor` of a tokenizer.json into a definition whose tokens are complete: RobertaProcessing,
/// TemplateProcessing, ByteLevel or null. Throws EnvironmentError for any other, and for ids that are not those of the
/// tokens.
void read_post_processor(const JsonPlace& place, TokenizerDefinition& definition);

/// Makes those of `names` that are tokens special, <mask> with the white space before it. With <s> and </s> among them,
/// they are put around texts as RoBERTa has it, and offsets are trimmed.
void use_special_tokens(const std::vector<std::string>& names, TokenizerDefinition& definition);

}  // namespace libtrain::detail
