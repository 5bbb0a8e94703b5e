#include <libtrain/text/train_tokenizer.hpp>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain {
namespace {

using test::message_of;
using ::testing::HasSubstr;

TEST(TokenizerTrainer, MergesTheMostFrequentPairFirst) {
  TokenizerTrainer trainer({.vocabulary_size = 265});
  trainer.add(std::vector<std::string>{"low low low low low lower lower newest newest newest newest newest newest"});
  const Tokenizer tokenizer = trainer.train();
  // By hand: "we" occurs 8 times, then "lo" 7 times, and of the pairs that occur 6 times in what is left, those that
  // begin with the lowest letter.
  EXPECT_EQ(tokenizer.vocabulary_size(), 265);
  EXPECT_EQ(tokenizer.token(261), "we");
  EXPECT_EQ(tokenizer.token(262), "lo");
  EXPECT_EQ(tokenizer.token(263), "ewe");
  EXPECT_EQ(tokenizer.token(264), "newe");
  EXPECT_EQ(trainer.words(), 4U);
}

TEST(TokenizerTrainer, LearnsTheSameWithAnyNumberOfThreads) {
  std::vector<std::string> texts;
  for (int i = 0; i < 1000; ++i) texts.push_back("a text number " + std::to_string(i * i) + " of some with words");
  std::vector<std::string> tokens;
  for (const int threads : {1, 2, 5}) {
    TokenizerTrainer trainer({.vocabulary_size = 400, .threads = threads});
    trainer.add(std::span{texts}.first(333));
    trainer.add(std::span{texts}.subspan(333));
    const Tokenizer tokenizer = trainer.train();
    std::vector<std::string> learnt;
    for (std::int64_t id = 0; id < tokenizer.vocabulary_size(); ++id) learnt.push_back(tokenizer.token(id));
    if (threads == 1) tokens = learnt;
    EXPECT_EQ(learnt, tokens) << threads;
    EXPECT_EQ(trainer.words(), 1007U);
  }
}

TEST(TokenizerTrainer, StopsWherePairsAreRare) {
  TokenizerTrainer trainer({.min_frequency = 3});
  EXPECT_EQ(trainer.train().vocabulary_size(), 261);
  trainer.add(std::vector<std::string>{"ab", "ab", "ab cd cd"});
  EXPECT_EQ(trainer.train().vocabulary_size(), 262);
}

TEST(TokenizerTrainer, RefusesOptionsThatCannotBe) {
  const auto refusal = [](TrainTokenizerOptions options) {
    return message_of<UsageError>([&] { TokenizerTrainer trainer(std::move(options)); });
  };
  EXPECT_THAT(refusal({.vocabulary_size = 260}), HasSubstr("Set it to 261"));
  EXPECT_THAT(refusal({.special_tokens = {"<s>", "<s>"}}), HasSubstr("'<s>'"));
  EXPECT_THAT(refusal({.special_tokens = {""}}), HasSubstr("empty"));
  EXPECT_THAT(refusal({.special_tokens = {"\xff"}}), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal({.threads = 0}), HasSubstr("threads is 0"));
}

}  // namespace
}  // namespace libtrain
