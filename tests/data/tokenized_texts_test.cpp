#include <libtrain/data/tokenized_texts.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/memory_file.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

LabelledTexts texts_of(const std::string& csv, const LabelledTextsOptions& options = {}) {
  std::vector<std::unique_ptr<const File>> files;
  files.push_back(memory_file(csv, "a.csv"));
  return LabelledTexts(std::move(files), options);
}

// Each byte is a token; 1 begins, 2 ends, and 2, 2 divides a pair.
std::vector<std::int64_t> bytes_as_ids(std::string_view text, std::optional<std::string_view> second) {
  std::vector<std::int64_t> ids{1};
  for (const char letter : text) ids.push_back(static_cast<unsigned char>(letter));
  if (second) ids.insert(ids.end(), {2, 2});
  for (const char letter : second.value_or("")) ids.push_back(static_cast<unsigned char>(letter));
  ids.push_back(2);
  return ids;
}

TEST(TokenizedTexts, HaveIdsAndClasses) {
  const TokenizedTexts set(texts_of("text,label\nab,x\nc,y\n"), bytes_as_ids);
  ASSERT_EQ(set.size(), 2u);
  EXPECT_THAT(set.sample(0).ids, ElementsAre(1, 'a', 'b', 2));
  EXPECT_THAT(set.sample(1).ids, ElementsAre(1, 'c', 2));
  EXPECT_EQ(set.sample(0).label, 0);
  EXPECT_EQ(set.sample(1).label, 1);
  EXPECT_TRUE(set.sample(1).targets.empty());
  EXPECT_THAT(set.lengths(), ElementsAre(4u, 3u));
  EXPECT_EQ(set.origin(1).path, "a.csv, line 3");
  EXPECT_THAT(set.texts().classes(), ElementsAre("x", "y"));
}

TEST(TokenizedTexts, EncodePairsTogether) {
  const TokenizedTexts set(texts_of("sentence1,sentence2,label\na,b,0\n"), bytes_as_ids);
  EXPECT_THAT(set.sample(0).ids, ElementsAre(1, 'a', 2, 2, 'b', 2));
}

TEST(TokenizedTexts, HaveTargetsOfSeveralClassesAndOfNumbers) {
  const TokenizedTexts several(texts_of("text,labels\na,\"z,x\"\nb,\nc,y\n", {.labels = TextLabels::several_classes}),
                               bytes_as_ids);
  EXPECT_THAT(several.sample(0).targets, ElementsAre(1, 0, 1));
  EXPECT_THAT(several.sample(1).targets, ElementsAre(0, 0, 0));
  EXPECT_THAT(several.sample(2).targets, ElementsAre(0, 1, 0));
  const TokenizedTexts numbers(texts_of("text,score\na,2.5\n", {.labels = TextLabels::numbers}), bytes_as_ids);
  EXPECT_THAT(numbers.sample(0).targets, ElementsAre(2.5f));
  const TokenizedTexts none(texts_of("text\na\n", {.labels = TextLabels::none}), bytes_as_ids);
  EXPECT_EQ(none.sample(0).label, 0);
}

TEST(TokenizedTexts, RefuseOrLeaveOutTextsThatAreTooLong) {
  const std::string csv = "text,label\nab,x\nabcdef,y\nc,y\nabcdefg,x\n";
  EXPECT_THAT(message_of<EnvironmentError>([&] { TokenizedTexts(texts_of(csv), bytes_as_ids, {.maximum_tokens = 7}); }),
              AllOf(HasSubstr("a.csv, line 3: expected at most 7 tokens, found 8"), HasSubstr("leave such ones out")));
  const TokenizedTexts set(texts_of(csv), bytes_as_ids, {.maximum_tokens = 7, .bad_texts = BadTexts::leave_out});
  EXPECT_EQ(set.size(), 2u);
  EXPECT_EQ(set.left_out(), 2u);
  EXPECT_EQ(set.origin(1).path, "a.csv, line 4");
  EXPECT_EQ(set.sample(1).label, 1);
  EXPECT_THAT(set.first_left_out(), HasSubstr("a.csv, line 3"));
  EXPECT_THAT(message_of<EnvironmentError>([&] {
                TokenizedTexts(texts_of(csv), bytes_as_ids, {.maximum_tokens = 2, .bad_texts = BadTexts::leave_out});
              }),
              HasSubstr("No text is left"));
}

TEST(TokenizedTexts, AreTheSameForAnyNumberOfThreads) {
  std::string csv = "text,label\n";
  for (int row = 0; row < 5000; ++row)
    csv += "text number " + std::to_string(row * row) + "," + std::to_string(row % 3) + "\n";
  const TokenizedTexts one(texts_of(csv), bytes_as_ids, {.threads = 1});
  const TokenizedTexts four(texts_of(csv), bytes_as_ids, {.threads = 4});
  EXPECT_EQ(one.identity(), four.identity());
  for (const std::uint64_t index : {0, 1023, 1024, 4999}) {
    EXPECT_EQ(one.sample(index).ids, bytes_as_ids(one.texts().text(index), std::nullopt));
    EXPECT_EQ(four.sample(index).ids, one.sample(index).ids);
  }
}

TEST(TokenizedTexts, PassTheErrorsOfTheEncoder) {
  const auto fails = [](std::string_view text, std::optional<std::string_view>) -> std::vector<std::int64_t> {
    if (text == "b") throw std::runtime_error("no token for b");
    return {1};
  };
  EXPECT_THAT(message_of<std::runtime_error>([&] { TokenizedTexts(texts_of("text,label\na,0\nb,1\n"), fails); }),
              HasSubstr("no token for b"));
  const auto empty = [](std::string_view, std::optional<std::string_view>) { return std::vector<std::int64_t>{}; };
  EXPECT_THAT(message_of<EnvironmentError>([&] { TokenizedTexts(texts_of("text,label\na,0\n"), empty); }),
              HasSubstr("line 2: expected tokens, found none"));
  const auto negative = [](std::string_view, std::optional<std::string_view>) { return std::vector<std::int64_t>{-1}; };
  EXPECT_THAT(message_of<UsageError>([&] { TokenizedTexts(texts_of("text,label\na,0\n"), negative); }),
              HasSubstr("id -1"));
  EXPECT_THROW(TokenizedTexts(texts_of("text,label\na,0\n"), TextEncoder{}), UsageError);
  EXPECT_THROW(TokenizedTexts(texts_of("text,label\na,0\n"), bytes_as_ids, {.threads = 0}), UsageError);
}

TEST(TokenizedTexts, IdentityChangesWithTheTokens) {
  const auto other = [](std::string_view text, std::optional<std::string_view> second) {
    auto ids = bytes_as_ids(text, second);
    ids.front() = 3;
    return ids;
  };
  EXPECT_NE(TokenizedTexts(texts_of("text,label\na,0\n"), bytes_as_ids).identity(),
            TokenizedTexts(texts_of("text,label\na,0\n"), other).identity());
}

TEST(LengthGroups, HaveLengthsWithinTheRatio) {
  EXPECT_THAT(length_groups(std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 8, 511, 512}, 1),
              ElementsAre(0, 0, 1, 1, 2, 2, 2, 3, 8, 9));
  // 2^(1/2) = 1.41, 2, 2.83, 4, 5.66, 8, 11.3
  EXPECT_THAT(length_groups(std::vector<std::uint32_t>{1, 2, 3, 4, 5, 6, 7, 8, 11, 12}),
              ElementsAre(0, 2, 3, 4, 4, 5, 5, 6, 6, 7));
  EXPECT_THAT(length_groups(std::vector<std::uint32_t>{~0u}, 7), ElementsAre(223));
  EXPECT_THROW(length_groups({}, 0), UsageError);
  EXPECT_THROW(length_groups({}, 8), UsageError);
}

}  // namespace
}  // namespace libtrain::data
