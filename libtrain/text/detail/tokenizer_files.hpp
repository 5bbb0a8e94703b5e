#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include <libtrain/text/detail/tokenizer_definition.hpp>

namespace libtrain::detail {

/// What a tokenizer.json says, or vocab.json and merges.txt. Throws as read_tokenizer.
TokenizerDefinition read_tokenizer_json(const std::string& path);
TokenizerDefinition read_vocabulary_and_merges(const std::string& vocabulary, const std::string& merges);

/// Whether a file exists, or cannot be looked at, which reading it then reports.
bool may_be_read(const std::string& path);

/// The JSON of a file. Throws EnvironmentError, with the file, if it cannot be read or is no JSON.
nlohmann::json read_json(const std::string& path);

}  // namespace libtrain::detail
