#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/text/detail/tokenizer_definition.hpp>

namespace libtrain::detail {

/// A word, and how often it occurs.
using CountedWord = std::pair<std::string_view, std::int64_t>;

/// Adds merges, and the tokens that they make, to a definition with special tokens and bytes, until it has
/// `vocabulary_size` tokens or no pair occurs `min_frequency` times. The order of the words does not matter.
void learn_merges(const std::vector<CountedWord>& words, std::size_t vocabulary_size, std::uint64_t min_frequency,
                  TokenizerDefinition& definition);

}  // namespace libtrain::detail
