#include <libtrain/base/detail/option_words.hpp>

#include <cstddef>
#include <string_view>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

void require_option_values(std::span<const char* const> words,
                           const std::function<bool(const std::string& option)>& takes_value) {
  for (std::size_t index = 0; index < words.size(); ++index) {
    const std::string word = words[index];
    if (word == "--") return;  // what follows are no options
    if (!word.starts_with("--")) continue;
    if (word.find('=') == word.size() - 1) {
      throw UsageError(
          text("Option ", word.substr(0, word.size() - 1), " has no value after its equals sign. Give it a value."));
    }
    if (word.find('=') != std::string::npos || index + 1 == words.size() || !takes_value(word)) continue;
    const std::string_view value = words[++index];
    if (!value.starts_with("--")) continue;
    throw UsageError(text("Option ", word, " has no value: the next word is ", value, ". Give it a value, or write ",
                          word, '=', value, " if that is its value."));
  }
}

}  // namespace libtrain::detail
