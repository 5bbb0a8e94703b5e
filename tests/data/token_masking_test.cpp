#include <libtrain/data/token_masking.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/fresh_seed.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::Each;
using ::testing::HasSubstr;

using Ids = std::vector<std::int64_t>;

// RoBERTa's special tokens.
constexpr std::int64_t kBegin = 0, kPad = 1, kEnd = 2, kUnknown = 3, kMask = 50264;
MaskingOptions roberta() {
  return {.mask_id = kMask, .vocabulary_size = 50265, .special_ids = {kBegin, kPad, kEnd, kUnknown, kMask}};
}

Ids words(std::size_t count) {
  Ids ids(count + 2, 1000);
  ids.front() = kBegin;
  ids.back() = kEnd;
  return ids;
}

// Of binomial counts, within 5 standard deviations.
void expect_share(std::size_t count, std::size_t of, double share) {
  const auto trials = static_cast<double>(of);
  EXPECT_NEAR(static_cast<double>(count), trials * share, 5 * std::sqrt(trials * share * (1 - share)));
}

TEST(MaskTokens, ChoosesFifteenPercentAndMasksFourFifths) {
  const test::FreshSeed seed;
  std::size_t chosen = 0, masked = 0, random_ones = 0, kept = 0, all = 0;
  for (std::uint64_t text = 0; text < 1000; ++text) {
    SampleRandom random(seed.value, 0, text);
    Ids ids = words(200);
    const Ids labels = mask_tokens(ids, roberta(), random);
    ASSERT_EQ(labels.size(), ids.size());
    ASSERT_EQ(ids.front(), kBegin);
    ASSERT_EQ(ids.back(), kEnd);
    all += 200;
    for (std::size_t place = 0; place < ids.size(); ++place) {
      if (labels[place] == kNoTokenLabel) {
        ASSERT_TRUE(ids[place] == 1000 || place == 0 || place + 1 == ids.size());
        continue;
      }
      ASSERT_EQ(labels[place], 1000);
      ++chosen;
      if (ids[place] == kMask) {
        ++masked;
      } else if (ids[place] == 1000) {
        ++kept;
      } else {
        ASSERT_GT(ids[place], kUnknown);
        ASSERT_LT(ids[place], kMask);
        ++random_ones;
      }
    }
  }
  expect_share(chosen, all, 0.15);
  expect_share(masked, chosen, 0.8);
  expect_share(random_ones, chosen, 0.1);
  expect_share(kept, chosen, 0.1);
}

TEST(MaskTokens, DrawsEveryOrdinaryTokenAndNoSpecialOne) {
  const MaskingOptions options{
      .mask_id = 1, .vocabulary_size = 6, .special_ids = {0, 4}, .probability = 1, .masked = 0, .random = 1};
  std::set<std::int64_t> drawn;
  SampleRandom random(1, 2, 3);
  for (int trial = 0; trial < 200; ++trial) {
    Ids ids{5, 2};
    EXPECT_EQ(mask_tokens(ids, options, random), (Ids{5, 2}));
    drawn.insert(ids.begin(), ids.end());
  }
  EXPECT_EQ(drawn, (std::set<std::int64_t>{2, 3, 5}));
}

TEST(MaskTokens, ChoosesOneTokenAtLeast) {
  std::set<std::size_t> places;
  for (std::uint64_t text = 0; text < 200; ++text) {
    SampleRandom random(7, 0, text);
    auto options = roberta();
    options.probability = 1e-9;
    Ids ids = words(5);
    const Ids labels = mask_tokens(ids, options, random);
    std::size_t chosen = 0;
    for (std::size_t place = 0; place < labels.size(); ++place) {
      if (labels[place] == kNoTokenLabel) continue;
      ++chosen;
      places.insert(place);
    }
    ASSERT_EQ(chosen, 1u);
  }
  EXPECT_EQ(places, (std::set<std::size_t>{1, 2, 3, 4, 5}));
}

TEST(MaskTokens, LeavesSpecialTokensAlone) {
  SampleRandom random(1, 2, 3);
  auto options = roberta();
  options.probability = 1;
  Ids ids{kBegin, kEnd, kEnd, kPad, kMask};
  EXPECT_THAT(mask_tokens(ids, options, random), Each(kNoTokenLabel));
  EXPECT_EQ(ids, (Ids{kBegin, kEnd, kEnd, kPad, kMask}));
  Ids none;
  EXPECT_TRUE(mask_tokens(none, options, random).empty());
}

TEST(MaskTokens, RefusesSharesAndVocabulariesThatCannotBe) {
  SampleRandom random(1, 2, 3);
  Ids ids = words(3);
  for (const MaskingOptions& options :
       {MaskingOptions{.vocabulary_size = 9, .probability = 1.5},
        {.vocabulary_size = 9, .masked = -0.1},
        {.vocabulary_size = 9, .masked = 0.8, .random = 0.3},
        {.vocabulary_size = 9, .probability = std::numeric_limits<double>::quiet_NaN()}}) {
    EXPECT_THAT(message_of<UsageError>([&] { mask_tokens(ids, options, random); }), HasSubstr("numbers from 0 to 1"));
  }
  for (const MaskingOptions& options :
       {MaskingOptions{}, {.mask_id = 1, .vocabulary_size = 2, .special_ids = {0, 0}}}) {
    EXPECT_THAT(message_of<UsageError>([&] { mask_tokens(ids, options, random); }), HasSubstr("vocabulary of"));
  }
}

class OrdinaryWords : public DatasetOf<TokenSample> {
 public:
  std::uint64_t size() const override { return 3; }
  TokenSample get(std::uint64_t index, SampleRandom&) const override {
    return {.ids = words(20), .label = static_cast<std::int64_t>(index)};
  }
  std::vector<std::uint64_t> blocks() const override { return {2, 1}; }
};

// Whatever batch or rank reads it; in another epoch the masks are others.
TEST(MaskedTexts, DependOnSeedEpochAndSampleAlone) {
  const OrdinaryWords texts;
  const MaskedTexts masked(texts, roberta());
  ASSERT_EQ(masked.size(), 3u);
  const auto read = [&](std::uint64_t seed, std::uint64_t epoch, std::uint64_t index) {
    SampleRandom random(seed, epoch, index);
    return masked.get(index, random);
  };
  const TokenSample first = read(1, 0, 2);
  read(1, 0, 1);
  EXPECT_EQ(read(1, 0, 2).ids, first.ids);
  EXPECT_EQ(read(1, 0, 2).token_labels, first.token_labels);
  EXPECT_NE(read(1, 1, 2).token_labels, first.token_labels);
  EXPECT_NE(read(2, 0, 2).token_labels, first.token_labels);
  EXPECT_EQ(first.label, 2);
  EXPECT_EQ(masked.blocks(), texts.blocks());
  EXPECT_THROW(MaskedTexts(texts, {}), UsageError);
}

}  // namespace
}  // namespace libtrain::data
