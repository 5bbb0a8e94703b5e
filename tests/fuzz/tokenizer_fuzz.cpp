// A tokenizer.json, or a vocab.json followed by a merges.txt: every byte sequence is read or refused by an
// EnvironmentError, what is read encodes, and every byte sequence is a text that decodes to what it was.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/text/detail/tokenizer_core.hpp>
#include <libtrain/text/detail/tokenizer_files.hpp>
#include <libtrain/text/detail/utf8.hpp>
#include <libtrain/text/tokenizer.hpp>

#include <tests/data/memory_path.hpp>
#include <tests/fuzz/target.hpp>
#include <tests/text/sample_tokenizer.hpp>

namespace {

using libtrain::data::MemoryPath;
using libtrain::detail::TokenizerDefinition;

constexpr std::string_view kMerges = "\n#version";  // where a merges.txt begins

libtrain::Tokenizer make(TokenizerDefinition definition) {
  return libtrain::Tokenizer(std::make_shared<const libtrain::detail::TokenizerCore>(std::move(definition)));
}

// What a caller may rely on.
void encode(const libtrain::Tokenizer& tokenizer, std::string_view text) {
  // A tokenizer.json may set a limit that its own special tokens exceed.
  const auto encoding = tokenizer.encode(text, {.max_tokens = ~std::size_t{0}, .offsets = true});
  require(encoding.offsets.size() == encoding.ids.size());
  for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
    require(encoding.ids[i] >= 0 && encoding.ids[i] < tokenizer.vocabulary_size());
    require(encoding.offsets[i].begin <= encoding.offsets[i].end && encoding.offsets[i].end <= text.size());
  }
  tokenizer.decode(encoding.ids, {.special_tokens = true});
}

void read(std::string_view bytes) {
  try {
    const std::size_t merges = bytes.find(kMerges);
    if (merges == std::string_view::npos) {
      encode(make(libtrain::detail::read_tokenizer_json(MemoryPath(bytes).path())), "hello <mask> world");
    } else {
      const MemoryPath vocabulary_file(bytes.substr(0, merges));
      const MemoryPath merges_file(bytes.substr(merges + 1));
      encode(make(libtrain::detail::read_vocabulary_and_merges(vocabulary_file.path(), merges_file.path())), "hello");
    }
    ++read_inputs;
  } catch (const libtrain::EnvironmentError&) {
  }
}

// The sample, in which no token takes white space along.
const libtrain::Tokenizer& plain_tokenizer() {
  static const libtrain::Tokenizer tokenizer = [] {
    auto definition = libtrain::detail::read_tokenizer_json(MemoryPath(libtrain::test::sample_tokenizer_json()).path());
    for (auto& token : definition.added_tokens) token.lstrip = false;
    return make(std::move(definition));
  }();
  return tokenizer;
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {libtrain::test::sample_tokenizer_json(),
          libtrain::test::sample_vocab_json() + '\n' + libtrain::test::sample_merges_txt()};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  encode(plain_tokenizer(), bytes);
  const auto ids = plain_tokenizer().encode(bytes, {.special_tokens = false}).ids;
  require(plain_tokenizer().decode(ids, {.special_tokens = true}) == libtrain::detail::replace_invalid_utf8(bytes));
  return 0;
}
