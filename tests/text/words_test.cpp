// How a text becomes words, and a word tokens: the fast ways give what the plain ones do.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/text/detail/byte_alphabet.hpp>
#include <libtrain/text/detail/utf8.hpp>
#include <libtrain/text/detail/word_cache.hpp>
#include <libtrain/text/detail/word_merger.hpp>
#include <libtrain/text/detail/word_splitter.hpp>

#include <tests/support/fresh_seed.hpp>

namespace libtrain::detail {
namespace {

using test::FreshSeed;

TEST(WordSplitter, FindsWordsOfAsciiAsPcre2Does) {
  const FreshSeed seed;
  std::mt19937_64 random(seed.value);
  const WordSplitter splitter;
  const auto matches = splitter.make_matches();
  static const std::vector<std::string> kPieces = {"a",
                                                   "Z",
                                                   "s",
                                                   "t",
                                                   "re",
                                                   "ve",
                                                   "ll",
                                                   "d",
                                                   "m",
                                                   "'",
                                                   "'",
                                                   " ",
                                                   " ",
                                                   "\t",
                                                   "\n",
                                                   "\v",
                                                   "0",
                                                   "7",
                                                   "!",
                                                   ".",
                                                   "\x01",
                                                   std::string(1, '\0'),
                                                   "\x1c",
                                                   "\x7f",
                                                   "é",
                                                   "\xc2\xa0",
                                                   "\xe3\x80\x80",
                                                   "½",
                                                   "€",
                                                   "\xcc\x81",
                                                   "\xc2\x85",
                                                   "x"};
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (std::uint64_t pieces = random() % 24; pieces > 0; --pieces) text += kPieces[random() % kPieces.size()];
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = splitter.word_end(text, at, matches);
      ASSERT_EQ(end, splitter.matched_word_end(text, at, matches)) << "from byte " << at << " of '" << text << "'";
      at = end;
    }
  }
}

TEST(WordSplitter, KnowsCharactersOfWords) {
  for (const char* word : {"a", "Z", "_", "7", "é", "日", "\xcc\x81", "\xe2\x80\x8d", "\xe2\x80\xbf"}) {
    EXPECT_TRUE(begins_with_word(word)) << word;
    EXPECT_TRUE(ends_with_word(std::string{" "} + word)) << word;
  }
  for (const char* other : {"", " ", "-", "'", "€", "½", "\xc2\xa0"}) {
    EXPECT_FALSE(begins_with_word(other)) << other;
    EXPECT_FALSE(ends_with_word(std::string{"a"}.substr(*other == '\0') + other)) << other;
  }
}

// Merges by the definition: again and again the pair with the lowest rank, the leftmost of equal ones.
std::vector<std::uint32_t> merged_by_definition(
    std::vector<std::uint32_t> ids,
    const std::map<std::pair<std::uint32_t, std::uint32_t>, MergeTable::Merge>& merges) {
  while (true) {
    std::size_t best = ids.size();
    std::uint32_t rank = ~std::uint32_t{0};
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = merges.find({ids[i], ids[i + 1]});
      if (found == merges.end() || found->second.rank >= rank) continue;
      best = i;
      rank = found->second.rank;
    }
    if (best == ids.size()) return ids;
    ids[best] = merges.at({ids[best], ids[best + 1]}).id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(WordMerger, MergesShortAndLongWordsByTheDefinition) {
  const FreshSeed seed;
  std::mt19937_64 random(seed.value);
  std::array<std::uint32_t, 256> bytes{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) bytes[byte] = byte;
  WordMerger merger;
  for (int round = 0; round < 300; ++round) {
    // Tokens of 3 letters and of what merges of earlier ones make.
    std::map<std::pair<std::uint32_t, std::uint32_t>, MergeTable::Merge> merges;
    const std::size_t count = 1 + random() % 30;
    MergeTable table(count);
    std::vector<std::uint32_t> tokens{'a', 'b', 'c'};
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      const std::pair pair{tokens[random() % tokens.size()], tokens[random() % tokens.size()]};
      const MergeTable::Merge merge{.rank = rank, .id = 256 + rank};
      ASSERT_EQ(table.insert(pair.first, pair.second, merge), merges.emplace(pair, merge).second);
      tokens.push_back(merge.id);
    }
    std::string word(1 + random() % 120, 'a');
    for (char& letter : word) letter = static_cast<char>('a' + random() % 3);
    std::vector<std::uint32_t> letters;
    for (const char letter : word) letters.push_back(static_cast<unsigned char>(letter));
    merger.merge(table, bytes, word);
    const std::vector<std::uint32_t> ids(merger.ids(), merger.ids() + merger.size());
    ASSERT_EQ(ids, merged_by_definition(letters, merges)) << word;
    std::size_t total = 0;
    for (std::size_t i = 0; i < merger.size(); ++i) total += merger.lengths()[i];
    ASSERT_EQ(total, word.size());
  }
}

TEST(WordCache, HasOneKeyForAWordWhereverItStands) {
  const std::string text = std::string("\0\0abcdefghijklmnopqrstuvwxyz\0", 29) + std::string(40, '\xff');
  for (std::size_t size = 1; size <= WordCache::kBytes; ++size) {
    for (std::size_t at = 0; at + size <= text.size(); ++at) {
      const std::string word = text.substr(at, size);
      const auto key = WordCache::key_of(std::string_view{text}.substr(at, size), text.size() - at);
      ASSERT_EQ(key, WordCache::key_of(word, size)) << at << ' ' << size;
      std::string padded = word;
      padded.resize(WordCache::kBytes);
      ASSERT_TRUE(std::equal(padded.begin(), padded.end(), reinterpret_cast<const char*>(key.words.data())));
    }
  }
}

TEST(Utf8, ReplacesMaximalSubparts) {
  // The Unicode Standard 16.0, tables 3-8 to 3-11.
  const std::string replacement = "\xef\xbf\xbd";
  const auto replaced = [&](std::string pattern) {
    for (std::size_t at = 0; (at = pattern.find('?', at)) != std::string::npos; at += 3)
      pattern.replace(at, 1, replacement);
    return pattern;
  };
  EXPECT_EQ(replace_invalid_utf8("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"), replaced("????????A"));
  EXPECT_EQ(replace_invalid_utf8("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"), replaced("????????A"));
  EXPECT_EQ(replace_invalid_utf8("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"), replaced("?????A??B"));
  EXPECT_EQ(replace_invalid_utf8("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), replaced("????A"));
  const RepairedText repaired = repair_utf8("a\xe2\x82");
  EXPECT_EQ(repaired.text, "a" + replacement);
  EXPECT_EQ(repaired.origins, (std::vector<std::size_t>{0, 1, 1, 1, 3}));
}

TEST(ByteAlphabet, SpellsEachByteByALetter) {
  EXPECT_EQ(spell_bytes(std::string_view("\0 \n\x7f\xa0\xad\xff!~", 9)), "ĀĠĊġłŃÿ!~");
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    EXPECT_EQ(bytes_of_token(spell_bytes(bytes)), bytes);
  }
  for (const char* token : {" ", "\xc2\xa0", "ń", "日", "a b"}) EXPECT_EQ(bytes_of_token(token), std::nullopt) << token;
}

}  // namespace
}  // namespace libtrain::detail
