#include <libtrain/text/tokenizer.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/text/detail/tokenizer_core.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>
#include <tests/text/sample_tokenizer.hpp>

namespace libtrain {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kHello = test::kFirstMerged + 5;
constexpr std::int64_t kWorld = test::kFirstMerged + 8;
constexpr std::int64_t kMask = 4;

// The id of a byte that is its own letter.
std::int64_t id_of(char byte) {
  return 5 + byte - '!';
}

class SampleTokenizer : public ::testing::Test {
 protected:
  Tokenizer read(const std::string& json = test::sample_tokenizer_json()) {
    test::write_file(folder_ / "tokenizer.json", json);
    return read_tokenizer(folder_.path().string());
  }

  // What the refusal of the sample says after a change.
  template <typename Change>
  std::string refusal(const Change& change) {
    Json json = Json::parse(test::sample_tokenizer_json());
    change(json);
    return message_of<EnvironmentError>([&] { read(json.dump()); });
  }

  std::string refusal_of_files(const std::string& vocabulary, const std::string& merges) {
    const test::TemporaryFolder folder;
    test::write_file(folder / "vocab.json", vocabulary);
    test::write_file(folder / "merges.txt", merges);
    return message_of<EnvironmentError>([&] { read_tokenizer(folder.path().string()); });
  }

  test::TemporaryFolder folder_;
};

TEST_F(SampleTokenizer, MergesInTheOrderThatWasLearnt) {
  const Encoding encoding = read().encode("hello world held", {.offsets = true});
  const std::int64_t space = *read().find("Ġ");
  EXPECT_THAT(encoding.ids, ElementsAre(0, kHello, kWorld, space, test::kFirstMerged + 1, test::kFirstMerged + 7, 2));
  EXPECT_THAT(encoding.offsets, ElementsAre(TextRange{0, 0}, TextRange{0, 5}, TextRange{6, 11}, TextRange{12, 12},
                                            TextRange{12, 14}, TextRange{14, 16}, TextRange{0, 0}));
  EXPECT_EQ(encoding.second_begin, 7U);
  EXPECT_FALSE(encoding.truncated);
}

TEST_F(SampleTokenizer, PutsSpecialTokensBetweenAPair) {
  const Encoding encoding = read().encode_pair("hello", "x", {.offsets = true});
  EXPECT_THAT(encoding.ids, ElementsAre(0, kHello, 2, 2, id_of('x'), 2));
  EXPECT_EQ(encoding.second_begin, 4U);
  EXPECT_EQ(encoding.offsets[4], (TextRange{0, 1}));
}

TEST_F(SampleTokenizer, FindsSpecialTokensInTheText) {
  const Tokenizer tokenizer = read();
  EXPECT_THAT(tokenizer.encode("x  <mask>x").ids, ElementsAre(0, id_of('x'), kMask, id_of('x'), 2));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("x  <mask>x").ids, {.special_tokens = true}), "<s>x<mask>x</s>");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("x  <mask>x").ids), "xx");
}

TEST_F(SampleTokenizer, TruncatesTheLongerTextFirst) {
  const Tokenizer tokenizer = read();
  const Encoding one = tokenizer.encode("hello hello hello", {.max_tokens = 3});
  EXPECT_THAT(one.ids, ElementsAre(0, kHello, 2));
  EXPECT_TRUE(one.truncated);
  const Encoding two = tokenizer.encode_pair("abcdef", "x", {.max_tokens = 7});
  EXPECT_THAT(two.ids, ElementsAre(0, id_of('a'), id_of('b'), 2, 2, id_of('x'), 2));
  EXPECT_FALSE(tokenizer.encode("hello", {.max_tokens = 3}).truncated);
  EXPECT_TRUE(tokenizer.encode("", {.max_tokens = 2}).ids == std::vector<std::int64_t>({0, 2}));
  EXPECT_THAT(message_of<UsageError>([&] { tokenizer.encode_pair("a", "b", {.max_tokens = 3}); }),
              AllOf(HasSubstr("max_tokens is 3"), HasSubstr("at least 4")));
}

TEST_F(SampleTokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer = read();
  EXPECT_EQ(tokenizer.vocabulary_size(), 271);
  EXPECT_EQ(tokenizer.special_tokens().bos, 0);
  EXPECT_EQ(tokenizer.special_tokens().pad, 1);
  EXPECT_EQ(tokenizer.special_tokens().eos, 2);
  EXPECT_EQ(tokenizer.special_tokens().unknown, 3);
  EXPECT_EQ(tokenizer.special_tokens().mask, kMask);
  EXPECT_EQ(tokenizer.special_ids(), (std::vector<std::int64_t>{0, 1, 2, 3, kMask}));
  EXPECT_EQ(tokenizer.token(kWorld), "Ġworld");
  EXPECT_EQ(tokenizer.find("Ġworld"), kWorld);
  EXPECT_EQ(tokenizer.find("world"), std::nullopt);
  const std::vector<std::int64_t> unknown{kHello, 271};
  EXPECT_THAT(message_of<UsageError>([&] { tokenizer.decode(unknown); }), HasSubstr("id 271; its ids are below 271"));
}

TEST_F(SampleTokenizer, CountsOffsetsOfDamagedBytesInTheTextAsItIs) {
  // A character of three bytes that is cut, then one that is whole.
  const Encoding encoding = read().encode("a\xe2\x82-\xe2\x82\xac", {.special_tokens = false, .offsets = true});
  ASSERT_EQ(encoding.ids.size(), 8U);  // U+FFFD has three bytes, too
  EXPECT_EQ(encoding.offsets[0], (TextRange{0, 1}));
  for (const std::size_t token : {1U, 2U, 3U}) EXPECT_EQ(encoding.offsets[token], (TextRange{1, 3}));
  EXPECT_EQ(encoding.offsets[4], (TextRange{3, 4}));
  for (const std::size_t token : {5U, 6U, 7U}) EXPECT_EQ(encoding.offsets[token], (TextRange{4, 7}));
  EXPECT_EQ(read().decode(encoding.ids), "a\xef\xbf\xbd-\xe2\x82\xac");
}

// The time is that of reading each space once: for all spaces before, or after, each of them, it would be minutes.
TEST_F(SampleTokenizer, FindsManyTokensThatAreWhiteSpace) {
  for (const char* side : {"lstrip", "rstrip"}) {
    Json json = Json::parse(test::sample_tokenizer_json());
    Json token = json["added_tokens"][0];
    token.update({{"id", 271}, {"content", "\t"}, {side, true}});
    json["added_tokens"].push_back(token);
    const std::size_t count = 1'000'000;
    const auto begin = std::chrono::steady_clock::now();
    const auto ids = read(json.dump()).encode(std::string(count, '\t'), {.special_tokens = false}).ids;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
    EXPECT_EQ(ids, std::vector<std::int64_t>(count, 271));
  }
}

// A text that is too long only when its bytes are replaced: one piece of memory over and over, in 700 MB of addresses.
TEST_F(SampleTokenizer, CountsTheBytesOfATextAsItIsRead) {
  constexpr std::size_t kPiece = 1 << 20;
  constexpr std::size_t kSize = ((std::size_t{1} << 31) / 3 / kPiece + 1) * kPiece;
  test::write_file(folder_ / "piece", std::string(kPiece, '\xff'));
  const int file = ::open((folder_ / "piece").c_str(), O_RDONLY | O_CLOEXEC);
  void* const addresses = ::mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(addresses, MAP_FAILED);
  auto* const bytes = static_cast<char*>(addresses);
  for (std::size_t at = 0; at < kSize; at += kPiece) {
    ASSERT_EQ(::mmap(bytes + at, kPiece, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0), bytes + at);
  }
  ::close(file);
  const Tokenizer tokenizer = read();
  EXPECT_THAT(message_of<UsageError>([&] { tokenizer.encode({bytes, kSize}); }),
              AllOf(HasSubstr(std::to_string(3 * kSize) + " bytes"), HasSubstr("U+FFFD")));
  ::munmap(addresses, kSize);
}

TEST_F(SampleTokenizer, ServesSeveralThreads) {
  const Tokenizer tokenizer = read();
  std::vector<std::string> texts;
  for (int i = 0; i < 500; ++i) texts.push_back("hello w" + std::to_string(i * 7919) + " wörld <mask> held");
  std::vector<std::vector<std::int64_t>> expected;
  for (const auto& text : texts) expected.push_back(tokenizer.encode(text).ids);
  std::vector<int> wrong(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < wrong.size(); ++thread) {
      threads.emplace_back([&, thread] {
        for (std::size_t i = 0; i < texts.size(); ++i) wrong[thread] += tokenizer.encode(texts[i]).ids != expected[i];
      });
    }
  }
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

TEST_F(SampleTokenizer, KeepsNoMemoryOfALongText) {
  Json json = Json::parse(test::sample_tokenizer_json());
  json["pre_tokenizer"]["add_prefix_space"] = true;  // for which the text is copied
  const Tokenizer tokenizer = read(json.dump());
  const auto kept = [&](const std::string& text) {
    tokenizer.encode(text, {.offsets = true});
    detail::TokenizerCore::Lease lease(tokenizer.core());
    return (*lease).growing_bytes();
  };
  EXPECT_GT(kept(std::string(1000, '-')), 1000U);
  EXPECT_LT(kept(std::string(2 << 20, 'a')), 1U << 20U);  // one word
  std::string words;
  for (int i = 0; i < 300'000; ++i) words += "hello ";
  EXPECT_LT(kept(words), 1U << 20U);
}

TEST_F(SampleTokenizer, IsWrittenAsItWasRead) {
  Json json = Json::parse(test::sample_tokenizer_json());
  json["truncation"] = {{"direction", "Right"}, {"max_length", 6}, {"strategy", "LongestFirst"}, {"stride", 0}};
  json["added_tokens"].push_back({{"id", 271},
                                  {"content", "<new>"},
                                  {"single_word", true},
                                  {"lstrip", false},
                                  {"rstrip", true},
                                  {"normalized", true},
                                  {"special", false}});
  const Tokenizer tokenizer = read(json.dump());
  const test::TemporaryFolder copy;
  write_tokenizer(tokenizer, copy / "new");
  Json written = Json::parse(test::read_file(copy / "new/tokenizer.json"));
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) json["model"][name] = nullptr;
  EXPECT_EQ(nlohmann::json(written), nlohmann::json(json));
  EXPECT_EQ(test::read_file(copy / "new/vocab.json"), test::sample_vocab_json() + '\n');
  EXPECT_EQ(test::read_file(copy / "new/merges.txt"), test::sample_merges_txt());
  EXPECT_EQ(read_tokenizer(copy / "new").encode("hello world <new> held").ids,
            tokenizer.encode("hello world <new> held").ids);
  EXPECT_EQ(tokenizer.max_tokens(), 6);
  write_tokenizer(tokenizer, copy / "shorter", 4);
  EXPECT_EQ(read_tokenizer(copy / "shorter").encode("hello world").ids,
            tokenizer.encode("hello world", {.max_tokens = 4}).ids);
}

TEST_F(SampleTokenizer, RefusesWhatItDoesNotDo) {
  const auto set = [&](const char* pointer, Json value) {
    return refusal([&](Json& json) { json[Json::json_pointer(pointer)] = std::move(value); });
  };
  EXPECT_THAT(set("/normalizer", {{"type", "NFC"}}), AllOf(HasSubstr("'normalizer' is an object"), HasSubstr("null")));
  EXPECT_THAT(set("/pre_tokenizer/type", "Whitespace"), HasSubstr(R"('pre_tokenizer.type' is "Whitespace")"));
  EXPECT_THAT(set("/pre_tokenizer/use_regex", false), HasSubstr("'pre_tokenizer.use_regex' is false"));
  EXPECT_THAT(set("/pre_tokenizer/pattern", "x"), HasSubstr("'pre_tokenizer.pattern'"));
  EXPECT_THAT(set("/decoder", nullptr), HasSubstr("'decoder' is null"));
  EXPECT_THAT(set("/post_processor/type", "BertProcessing"), HasSubstr("BertProcessing"));
  EXPECT_THAT(set("/post_processor/sep/1", 3), HasSubstr("'post_processor.sep[1]' is 3"));
  EXPECT_THAT(set("/padding", {{"strategy", "BatchLongest"}}), HasSubstr("'padding'"));
  EXPECT_THAT(set("/truncation", {{"max_length", 5}, {"direction", "Left"}}), HasSubstr("'truncation.direction'"));
  EXPECT_THAT(set("/model/type", "WordPiece"), HasSubstr("WordPiece"));
  EXPECT_THAT(set("/model/dropout", 0.1), HasSubstr("'model.dropout' is 0.1"));
  EXPECT_THAT(set("/model/byte_fallback", true), HasSubstr("'model.byte_fallback'"));
  EXPECT_THAT(set("/model/ignore_merges", true), HasSubstr("'model.ignore_merges'"));
  EXPECT_THAT(set("/model/end_of_word_suffix", "</w>"), HasSubstr("'model.end_of_word_suffix'"));
  EXPECT_THAT(set("/model/new", 1), HasSubstr("'model.new'"));
  EXPECT_THAT(set("/model/vocab/hello", 3), HasSubstr("'model.vocab."));
  EXPECT_THAT(set("/model/vocab/hello", 1 << 20), HasSubstr("below 1542"));
  EXPECT_THAT(set("/model/merges/3", "o z"), AllOf(HasSubstr("model.merges[3]"), HasSubstr("'oz'")));
  EXPECT_THAT(set("/model/merges/3", "l l"), AllOf(HasSubstr("model.merges[3]"), HasSubstr("second time")));
  EXPECT_THAT(set("/added_tokens/4/id", 3), HasSubstr("'added_tokens[4].id' is 3"));
  EXPECT_THAT(set("/added_tokens/4/content", "<s>"), HasSubstr("'added_tokens[4].content'"));
  EXPECT_THAT(refusal([](Json& json) { json["model"]["vocab"].erase("Ġ"); }), HasSubstr("for the byte 32"));
  EXPECT_THAT(refusal([](Json& json) { json.erase("model"); }), HasSubstr("'model' is missing"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { read("{\"version\": x"); }), HasSubstr("not JSON at byte 13"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { read("{\"version\": 1e999}"); }),
              HasSubstr("beyond those of a double"));
}

TEST_F(SampleTokenizer, TakesAddedTokensWithTheIdsThatTokenizersGivesThem) {
  const auto with_ids = [&](std::initializer_list<int> ids) {
    Json json = Json::parse(test::sample_tokenizer_json());
    json["model"]["vocab"]["Ġworld"] = 280;  // instead of 269
    for (const int id : ids) {
      Json token = json["added_tokens"][0];
      token["id"] = id;
      token["content"] = "<" + std::to_string(id) + ">";
      json["added_tokens"].push_back(token);
    }
    return json.dump();
  };
  EXPECT_EQ(read(with_ids({271, 272})).encode("<272>").ids[1], 272);
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(with_ids({371})); }),
              AllOf(HasSubstr("'added_tokens[5].id' is 371"), HasSubstr("271"), HasSubstr("'<371>'")));
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(with_ids({271, 273})); }),
              AllOf(HasSubstr("'added_tokens[6].id' is 273"), HasSubstr("272")));
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(with_ids({272, 271})); }), HasSubstr("'added_tokens[5].id'"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { read(with_ids({269})); }), HasSubstr("'added_tokens[5].id' is 269"));
}

TEST_F(SampleTokenizer, NamesTheLineOfAWrongMerge) {
  const std::string vocabulary = test::sample_vocab_json();
  EXPECT_THAT(refusal_of_files(vocabulary, "#version: 0.2\nl l\nhe\n"), AllOf(HasSubstr("line 3"), HasSubstr("'he'")));
  EXPECT_THAT(refusal_of_files(vocabulary, "l l\n\nh e\n"), HasSubstr("line 2"));
  EXPECT_THAT(refusal_of_files(vocabulary, "l l\nh e l\n"), HasSubstr("line 2"));
  EXPECT_THAT(refusal_of_files("[1]", "l l\n"), HasSubstr("an object"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { read_tokenizer(folder_.path().string()); }), HasSubstr("vocab.json"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { read_tokenizer(folder_ / "none"); }), HasSubstr("No such file"));
}

TEST_F(SampleTokenizer, NamesAFileThatCannotBeRead) {
  const auto refusal_of = [&](const std::string& path) {
    return message_of<EnvironmentError>([&] { read_tokenizer(path); });
  };
  std::filesystem::create_directory(folder_ / "tokenizer.json");
  EXPECT_THAT(refusal_of(folder_.path().string()), AllOf(HasSubstr("/tokenizer.json'"), HasSubstr("Is a directory")));
  std::filesystem::remove(folder_ / "tokenizer.json");
  test::write_file(folder_ / "vocab.json", test::sample_vocab_json());
  std::filesystem::create_directory(folder_ / "merges.txt");
  EXPECT_THAT(refusal_of(folder_.path().string()), AllOf(HasSubstr("/merges.txt'"), HasSubstr("Is a directory")));
  std::filesystem::remove(folder_ / "merges.txt");
  test::write_file(folder_ / "merges.txt", test::sample_merges_txt());
  std::filesystem::create_symlink("tokenizer_config.json", folder_ / "tokenizer_config.json");
  EXPECT_THAT(refusal_of(folder_.path().string()),
              AllOf(HasSubstr("/tokenizer_config.json'"), HasSubstr("Too many levels of symbolic links")));
  EXPECT_THAT(refusal_of(std::string(300, 'x')), AllOf(HasSubstr("xxx'"), HasSubstr("File name too long")));
}

TEST_F(SampleTokenizer, TakesVocabularyAndMergesForRoberta) {
  test::write_file(folder_ / "vocab.json", test::sample_vocab_json());
  test::write_file(folder_ / "merges.txt", test::sample_merges_txt());
  const Tokenizer tokenizer = read_tokenizer(folder_.path().string());
  const std::string text = "hello  <mask> world";
  EXPECT_EQ(tokenizer.encode(text, {.offsets = true}).offsets, read().encode(text, {.offsets = true}).offsets);
  EXPECT_EQ(tokenizer.encode_pair(text, "x").ids, read().encode_pair(text, "x").ids);
}

TEST_F(SampleTokenizer, FollowsTheConfigurationOrRefusesIt) {
  test::write_file(folder_ / "vocab.json", test::sample_vocab_json());
  test::write_file(folder_ / "merges.txt", test::sample_merges_txt());
  const auto without = read_tokenizer(folder_.path().string()).encode("hello").ids;
  test::write_file(folder_ / "tokenizer_config.json", R"({"add_prefix_space":true})");
  const auto with = read_tokenizer(folder_.path().string());
  EXPECT_EQ(with.encode("hello").ids.size(), without.size() + 1);

  write_tokenizer(with, folder_ / "written");
  EXPECT_EQ(read_tokenizer(folder_ / "written").encode("hello").ids, with.encode("hello").ids);
  test::write_file(folder_ / "written/tokenizer_config.json", R"({"add_prefix_space":false})");
  EXPECT_THAT(message_of<EnvironmentError>([&] { read_tokenizer(folder_ / "written"); }),
              HasSubstr("'add_prefix_space'"));
  test::write_file(folder_ / "written/tokenizer_config.json", R"({"add_prefix_space":null})");
  EXPECT_EQ(read_tokenizer(folder_ / "written").encode("hello").ids, with.encode("hello").ids);
}

TEST_F(SampleTokenizer, RefusesDeepNesting) {
  const int depth = 200'000;
  const std::string deep = std::string(depth, '[') + std::string(depth, ']');
  const Json whole = Json::parse(test::sample_tokenizer_json());
  const auto refusal_of = [&](const Json& processor) {
    Json json = whole;
    json["post_processor"] = processor;
    std::string bytes = json.dump();
    bytes.replace(bytes.find("\"DEEP\""), 6, deep);
    return message_of<EnvironmentError>([&] { read(bytes); });
  };
  Json special = {{"id", "<s>"}, {"ids", {0}}, {"tokens", {"<s>"}}};
  const auto by_template = [&](const Json& type_id, const Json& name) {
    Json other = special;
    other["id"] = name;
    return Json{
        {"type", "TemplateProcessing"},
        {"single", {{{"Sequence", {{"id", "A"}, {"type_id", type_id}}}}}},
        {"pair", {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
        {"special_tokens", {{"<s>", other}}}};
  };
  EXPECT_THAT(refusal_of("DEEP"), HasSubstr("'post_processor' is a list"));
  EXPECT_THAT(refusal_of({{"type", "DEEP"}}), HasSubstr("'post_processor.type' is a list"));
  EXPECT_THAT(
      refusal_of({{"type", "ByteLevel"}, {"trim_offsets", true}, {"add_prefix_space", true}, {"use_regex", "DEEP"}}),
      HasSubstr("'post_processor.use_regex' is a list"));
  EXPECT_THAT(refusal_of(by_template("DEEP", "<s>")), HasSubstr("type_id' is a list"));
  EXPECT_THAT(refusal_of(by_template(0, "DEEP")), HasSubstr("'post_processor.special_tokens.<s>.id' is a list"));
}

// A folder's files, and what the refusal of another one says.
class SampleFolder : public SampleTokenizer {
 protected:
  std::string refusal_with(const std::string& name, const std::string& content) {
    test::write_file(folder_ / name, content);
    const auto message = message_of<EnvironmentError>([&] { read_tokenizer(folder_.path().string()); });
    EXPECT_THAT(message, HasSubstr("/" + name + "'"));
    std::filesystem::remove(folder_ / name);
    return message;
  }

  void expect_taken_with(const std::string& name, const std::string& content) {
    test::write_file(folder_ / name, content);
    EXPECT_NO_THROW(read_tokenizer(folder_.path().string())) << content;
    std::filesystem::remove(folder_ / name);
  }

  // An 'added_tokens_decoder' as transformers 4 writes it.
  static Json config() {
    Json config;
    const Json whole = Json::parse(test::sample_tokenizer_json());
    for (Json token : whole["added_tokens"]) {
      const auto id = std::to_string(token["id"].get<int>());
      token.erase("id");
      config["added_tokens_decoder"][id] = token;
    }
    return config;
  }
};

TEST_F(SampleFolder, RefusesTokensOfOtherFilesThatTheDefinitionLacks) {
  for (const bool is_whole : {true, false}) {
    if (is_whole) {
      test::write_file(folder_ / "tokenizer.json", test::sample_tokenizer_json());
    } else {
      std::filesystem::remove(folder_ / "tokenizer.json");
      test::write_file(folder_ / "vocab.json", test::sample_vocab_json());
      test::write_file(folder_ / "merges.txt", test::sample_merges_txt());
    }
    expect_taken_with("added_tokens.json", R"({"<mask>":4})");
    EXPECT_THAT(refusal_with("added_tokens.json", R"({"<new>":271})"), HasSubstr("'<new>' is 271"));
    EXPECT_THAT(refusal_with("added_tokens.json", R"({"<mask>":271})"), HasSubstr("the id 4 of '<mask>'"));
    EXPECT_THAT(refusal_with("added_tokens.json", "[]"), HasSubstr("is a list"));
    const std::string roles = R"("mask_token":{"__type":"AddedToken","content":"<mask>"},"pad_token":"<pad>",)"
                              R"("add_bos_token":true,"sep_token":null)";
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
      expect_taken_with(name, '{' + roles + R"(,"additional_special_tokens":["<s>",{"content":"</s>"}]})");
      expect_taken_with(name, R"({"extra_special_tokens":{"a_token":"<s>"},"additional_special_tokens":null})");
      EXPECT_THAT(refusal_with(name, R"({"pad_token":"<new>"})"), HasSubstr(R"('pad_token' is "<new>")"));
      // In the vocabulary, but not an added token.
      EXPECT_THAT(refusal_with(name, R"({"pad_token":{"content":"hello"}})"), HasSubstr("'pad_token.content'"));
      EXPECT_THAT(refusal_with(name, R"({"additional_special_tokens":["<s>","<new>"]})"),
                  HasSubstr(R"('additional_special_tokens[1]' is "<new>")"));
      EXPECT_THAT(refusal_with(name, R"({"extra_special_tokens":{"x":"<new>"}})"),
                  HasSubstr(R"('extra_special_tokens.x' is "<new>")"));
    }
  }
}

TEST_F(SampleFolder, ComparesTheFlagsOfTokens) {
  test::write_file(folder_ / "tokenizer.json", test::sample_tokenizer_json());
  const char* name = "tokenizer_config.json";
  expect_taken_with(name, config().dump());
  for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized", "special"}) {
    Json other = config();
    auto& value = other["added_tokens_decoder"]["4"][flag];
    value = !value.get<bool>();
    EXPECT_THAT(refusal_with(name, other.dump()),
                AllOf(HasSubstr(std::string{"'added_tokens_decoder.4."} + flag), HasSubstr("'<mask>'")));
  }
  Json other = config();
  other["added_tokens_decoder"]["271"] = other["added_tokens_decoder"]["4"];
  EXPECT_THAT(refusal_with(name, other.dump()), HasSubstr("'added_tokens_decoder.271.content' is \"<mask>\""));
  other["added_tokens_decoder"]["271"]["content"] = "<new>";
  EXPECT_THAT(refusal_with(name, other.dump()), HasSubstr("'added_tokens_decoder.271.content' is \"<new>\""));
  other = config();
  other["added_tokens_decoder"].erase("4");
  EXPECT_THAT(refusal_with(name, other.dump()), HasSubstr("'<mask>' with the id 4"));
  // With all of them in one file, transformers does not read the others.
  test::write_file(folder_ / name, config().dump());
  expect_taken_with("added_tokens.json", R"({"<new>":271})");

  // Where only vocab.json says which tokens there are, `normalized` is not known.
  std::filesystem::remove(folder_ / "tokenizer.json");
  test::write_file(folder_ / "vocab.json", test::sample_vocab_json());
  test::write_file(folder_ / "merges.txt", test::sample_merges_txt());
  other = config();
  other["added_tokens_decoder"]["0"]["normalized"] = true;
  expect_taken_with(name, other.dump());
  other["added_tokens_decoder"]["4"]["lstrip"] = false;
  EXPECT_THAT(refusal_with(name, other.dump()), HasSubstr("'added_tokens_decoder.4.lstrip' is false"));
}

TEST_F(SampleTokenizer, WritesNoRolesOfTokensThatItDoesNotLookFor) {
  Json json = Json::parse(test::sample_tokenizer_json());
  json["added_tokens"].erase(4);
  const Tokenizer tokenizer = read(json.dump());
  write_tokenizer(tokenizer, folder_ / "written");
  EXPECT_EQ(read_tokenizer(folder_ / "written").encode("a <mask>").ids, tokenizer.encode("a <mask>").ids);
  const Json config = Json::parse(test::read_file(folder_ / "written/tokenizer_config.json"));
  EXPECT_EQ(config["pad_token"], "<pad>");
  EXPECT_FALSE(config.contains("mask_token"));
}

// Collects the places of all values in `json`.
void collect(const Json& json, const std::string& at, std::vector<std::string>& places) {
  if (!at.empty()) places.push_back(at);
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      if (at == "/model/vocab" && places.size() > 100) continue;  // the bytes are alike
      std::string escaped = key;
      if (escaped.find_first_of("~/") == std::string::npos) collect(value, at + '/' + escaped, places);
    }
  }
  for (std::size_t i = 0; json.is_array() && i < json.size(); ++i)
    collect(json[i], at + '/' + std::to_string(i), places);
}

TEST_F(SampleTokenizer, TakesOrRefusesAnyValueAnywhere) {
  const Json whole = Json::parse(test::sample_tokenizer_json());
  std::vector<std::string> places;
  collect(whole, "", places);
  ASSERT_GT(places.size(), 100U);
  int refused = 0;
  int taken = 0;
  for (const std::string& place : places) {
    for (const char* value : {"null", "true", "-1", "4194303", "1e300", "\"\"", "\"Ġ\"", "[]", "{}", "[[\"A\"]]"}) {
      SCOPED_TRACE(place + " = " + value);
      Json json = whole;
      json[Json::json_pointer(place)] = Json::parse(value);
      try {
        read(json.dump()).encode("hello <mask> world", {.offsets = true});
        ++taken;
      } catch (const EnvironmentError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(taken, 20);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace libtrain
