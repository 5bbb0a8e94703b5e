#pragma once

#include <libtrain/text/detail/json_place.hpp>
#include <libtrain/text/detail/tokenizer_definition.hpp>

namespace libtrain::detail {

/// Reads the `post_processor` of a tokenizer.json into a definition whose tokens are complete: RobertaProcessing,
/// TemplateProcessing, ByteLevel or null. Throws EnvironmentError for any other, and for ids that are not those of the
/// tokens.
void read_post_processor(const JsonPlace& place, TokenizerDefinition& definition);

}  // namespace libtrain::detail
