#include <libtrain/data/token_batch.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/data_loader.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::vector<T> values(const at::Tensor& tensor) {
  const auto* data = tensor.const_data_ptr<T>();
  return std::vector<T>(data, data + tensor.numel());
}

TEST(PadTokens, PadsToTheLongestText) {
  const TokenBatch batch = pad_tokens({{{5, 6, 7}, 1}, {{}, 2}, {{8}, 3}}, -1);
  ASSERT_EQ(batch.ids.sizes(), (at::IntArrayRef{3, 3}));
  ASSERT_EQ(batch.attention_mask.sizes(), (at::IntArrayRef{3, 3}));
  EXPECT_THAT(values<std::int64_t>(batch.ids), ElementsAre(5, 6, 7, -1, -1, -1, 8, -1, -1));
  EXPECT_THAT(values<bool>(batch.attention_mask),
              ElementsAre(true, true, true, false, false, false, true, false, false));
  EXPECT_THAT(values<std::int64_t>(batch.labels), ElementsAre(1, 2, 3));
}

TEST(PadTokens, RoundsTheLengthUp) {
  EXPECT_EQ(pad_tokens({{{5, 6, 7}, 1}}, 0, 8).ids.sizes(), (at::IntArrayRef{1, 8}));
  EXPECT_EQ(pad_tokens({{{1, 2, 3, 4, 5, 6, 7, 8}, 1}}, 0, 8).ids.sizes(), (at::IntArrayRef{1, 8}));
  EXPECT_EQ(pad_tokens({}, 0, 8).ids.sizes(), (at::IntArrayRef{0, 0}));
  EXPECT_THROW(pad_tokens({}, 0, 0), UsageError);
}

TEST(PackTokens, PutsTextsEndToEnd) {
  const PackedTokens batch = pack_tokens({{{5, 6, 7}, 1}, {{}, 2}, {{8, 9}, 3}});
  EXPECT_THAT(values<std::int64_t>(batch.ids), ElementsAre(5, 6, 7, 8, 9));
  EXPECT_THAT(values<std::int64_t>(batch.offsets), ElementsAre(0, 3, 3, 5));
  EXPECT_THAT(values<std::int64_t>(batch.labels), ElementsAre(1, 2, 3));
  EXPECT_THAT(values<std::int64_t>(pack_tokens({}).offsets), ElementsAre(0));
}

TEST(PackTokens, HasTargetsInPlaceOfClasses) {
  const std::vector<TokenSample> texts{{.ids = {5, 6}, .targets = {1, 0, 1}}, {.ids = {7}, .targets = {0, 0.5, 0}}};
  const at::Tensor packed = pack_tokens(texts).labels;
  ASSERT_EQ(packed.sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_THAT(values<float>(packed), ElementsAre(1, 0, 1, 0, 0.5, 0));
  EXPECT_TRUE(packed.equal(pad_tokens(texts, 0).labels));
  const std::vector<TokenSample> mixed{{.ids = {5}, .targets = {1}}, {.ids = {7}}};
  EXPECT_THAT(message_of<UsageError>([&] { pack_tokens(mixed); }), HasSubstr("with 1 and with 0 targets"));
}

TEST(PackTokens, HasTheLabelsOfTokens) {
  const std::vector<TokenSample> texts{{.ids = {5, 6}, .token_labels = {kNoTokenLabel, 9}},
                                       {.ids = {7, 8, 9}, .token_labels = {1, kNoTokenLabel, 2}}};
  EXPECT_THAT(values<std::int64_t>(pack_tokens(texts).token_labels), ElementsAre(-100, 9, 1, -100, 2));
  EXPECT_THAT(values<std::int64_t>(pad_tokens(texts, 0, 4).token_labels),
              ElementsAre(-100, 9, -100, -100, 1, -100, 2, -100));
  EXPECT_FALSE(pack_tokens({{{5}, 1}}).token_labels.defined());
  EXPECT_FALSE(pad_tokens({{{5}, 1}}, 0).token_labels.defined());
  const std::vector<TokenSample> mixed{{.ids = {5}, .token_labels = {1}}, {.ids = {7}}};
  EXPECT_THAT(message_of<UsageError>([&] { pad_tokens(mixed, 0); }), HasSubstr("1 ids and 0 token labels"));
}

// Text i has 1 + i % 5 tokens i, of which a random one is masked (-1), and the label i. Some are damaged.
class Texts : public DatasetOf<TokenSample> {
 public:
  explicit Texts(std::uint64_t size, std::set<std::uint64_t> damaged = {})
      : size_(size), damaged_(std::move(damaged)) {}
  std::uint64_t size() const override { return size_; }
  TokenSample get(std::uint64_t index, SampleRandom& random) const override {
    if (damaged_.contains(index)) throw EnvironmentError("text " + std::to_string(index) + " is damaged");
    const auto number = static_cast<std::int64_t>(index);
    TokenSample text{std::vector<std::int64_t>(1 + index % 5, number), number};
    text.ids[static_cast<std::size_t>(random.integer(0, static_cast<int>(text.ids.size()) - 1))] = -1;
    return text;
  }

 private:
  std::uint64_t size_;
  std::set<std::uint64_t> damaged_;
};

TokenBatch pad(const std::vector<TokenSample>& texts) {
  return pad_tokens(texts, 0);
}

// The result for each text, by its number, over all ranks.
using Read = std::map<std::int64_t, std::vector<std::int64_t>>;

void add(Read& read, const PackedTokens& batch) {
  const auto ids = values<std::int64_t>(batch.ids);
  const auto offsets = values<std::int64_t>(batch.offsets);
  const auto labels = values<std::int64_t>(batch.labels);
  for (std::size_t text = 0; text < labels.size(); ++text) {
    EXPECT_TRUE(
        read.emplace(labels[text], std::vector(ids.begin() + offsets[text], ids.begin() + offsets[text + 1])).second)
        << labels[text] << " was read twice";
  }
}

LoaderOptions exactly_once(std::uint64_t batch_size, int workers) {
  return {.batch_size = batch_size, .workers = workers, .seed = 5, .remainder = Remainder::exact};
}

TEST(DataLoaderOf, ReadsAnyNumberOfRanksTheSameTexts) {
  const Texts texts(101);
  Read alone;
  DataLoaderOf loader(texts, pack_tokens, exactly_once(8, 0));
  static_assert(std::is_same_v<decltype(loader), DataLoaderOf<PackedTokens>>);
  for (auto& batch : loader.epoch(3)) add(alone, batch);
  EXPECT_EQ(alone.size(), 101u);
  Read of_three;
  std::set<std::uint64_t> steps;
  for (int rank = 0; rank < 3; ++rank) {
    DataLoaderOf one(texts, pack_tokens, exactly_once(4, 2), {rank, 3});
    std::uint64_t count = 0;
    for (auto& batch : one.epoch(3)) {
      add(of_three, batch);
      ++count;
    }
    steps.insert(count);
  }
  EXPECT_EQ(of_three, alone);
  EXPECT_EQ(steps.size(), 1u);
}

TEST(DataLoaderOf, ShufflesAndDrawsAnewInEveryEpoch) {
  const Texts texts(50);
  DataLoaderOf loader(texts, pack_tokens, exactly_once(50, 1));
  std::vector<std::vector<std::int64_t>> orders;
  std::vector<Read> epochs(2);
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : loader.epoch(epoch)) {
      orders.push_back(values<std::int64_t>(batch.labels));
      add(epochs[epoch], batch);
    }
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST(DataLoaderOf, ResumesAtAnotherNumberOfRanks) {
  const Texts texts(101);
  Read alone;
  DataLoaderOf whole(texts, pack_tokens, exactly_once(16, 0));
  for (auto& batch : whole.epoch(1)) add(alone, batch);

  Read parts;
  LoaderState state;
  for (int rank = 0; rank < 2; ++rank) {
    DataLoaderOf loader(texts, pack_tokens, exactly_once(8, 2), {rank, 2});
    auto epoch = loader.epoch(1);
    for (int step = 0; step < 3; ++step) add(parts, *epoch.next());
    state = epoch.state();
  }
  EXPECT_EQ(parts.size(), 48u);
  for (int rank = 0; rank < 3; ++rank) {
    DataLoaderOf loader(texts, pack_tokens, exactly_once(5, 1), {rank, 3});
    for (auto& batch : loader.resume(LoaderState::from_text(state.to_text()))) add(parts, batch);
  }
  EXPECT_EQ(parts, alone);
}

// 101 texts of 1 to 5 tokens.
LoaderOptions by_tokens(std::uint64_t max_tokens, int workers) {
  LoaderOptions options = exactly_once(1, workers);
  options.max_tokens = max_tokens;
  for (std::uint32_t text = 0; text < 101; ++text) options.lengths.push_back(1 + text % 5);
  return options;
}

TEST(DataLoaderOf, MakesBatchesByTokens) {
  const Texts texts(101);
  Read alone;
  DataLoaderOf loader(texts, pack_tokens, by_tokens(24, 2));
  std::uint64_t count = 0;
  std::int64_t tokens = 0;
  for (auto& batch : loader.epoch(1)) {
    EXPECT_LE(batch.ids.size(0), 24);
    tokens += batch.ids.size(0);
    add(alone, batch);
    ++count;
  }
  EXPECT_EQ(alone.size(), 101u);
  EXPECT_EQ(tokens, 301);
  EXPECT_EQ(count, loader.sampler().steps(0, 1));

  // As many tokens on three ranks, then, within the epoch, fewer on two.
  Read parts;
  LoaderState state;
  for (int rank = 0; rank < 3; ++rank) {
    DataLoaderOf one(texts, pack_tokens, by_tokens(8, 1), {rank, 3});
    auto epoch = one.epoch(1);
    for (int step = 0; step < 5; ++step) add(parts, *epoch.next());
    state = epoch.state();
  }
  EXPECT_EQ(state.position, parts.size());
  for (int rank = 0; rank < 2; ++rank) {
    DataLoaderOf one(texts, pack_tokens, by_tokens(10, 0), {rank, 2});
    auto rest = one.resume(LoaderState::from_text(state.to_text()));
    while (auto batch = rest.next()) add(parts, *batch);
    EXPECT_EQ(rest.state().position, 101u);
  }
  EXPECT_EQ(parts, alone);
}

TEST(DataLoaderOf, BeginsAnEpochByTokensAtAnyOfItsSteps) {
  const Texts texts(101);
  DataLoaderOf loader(texts, pack_tokens, by_tokens(24, 0));
  std::vector<std::vector<std::int64_t>> all;
  for (auto& batch : loader.epoch(2)) all.push_back(values<std::int64_t>(batch.labels));
  for (std::uint64_t step = 0; step <= all.size(); ++step) {
    std::vector<std::vector<std::int64_t>> rest;
    for (auto& batch : loader.epoch(2, step)) rest.push_back(values<std::int64_t>(batch.labels));
    EXPECT_EQ(rest, std::vector(all.begin() + static_cast<std::ptrdiff_t>(step), all.end()));
  }
  EXPECT_THROW(loader.epoch(2, all.size() + 1), UsageError);
}

TEST(DataLoaderOf, NamesATextThatIsLongerThanABatch) {
  const Texts texts(101);
  EXPECT_THAT(message_of<UsageError>([&] { DataLoaderOf(texts, pack_tokens, by_tokens(4, 0)); }),
              HasSubstr("'sample 4' has 5 tokens, and max_tokens is 4"));
}

TEST(DataLoaderOf, ReplacesBadSamples) {
  const Texts texts(40, {3, 17});
  auto options = exactly_once(8, 2);
  options.bad_samples.maximum_count = 2;
  DataLoaderOf loader(texts, pad, options);
  std::int64_t read = 0;
  for (auto& batch : loader.epoch(0)) read += batch.labels.size(0);
  EXPECT_EQ(read, 40);
  EXPECT_EQ(loader.statistics().bad_samples, 2u);
}

TEST(DataLoaderOf, TheOnlySampleHasNoReplacement) {
  const Texts texts(1, {0});
  auto options = exactly_once(1, 0);
  options.bad_samples.maximum_count = 1;
  DataLoaderOf loader(texts, pad, options);
  EXPECT_EQ(message_of<EnvironmentError>([&] { loader.epoch(0).next(); }), "text 0 is damaged");
}

TEST(DataLoaderOf, WhatCollateThrowsArrivesAtItsPosition) {
  const Texts texts(40);
  auto options = exactly_once(8, 2);
  options.order = Order::sequential;
  DataLoaderOf loader(
      texts,
      [](const std::vector<TokenSample>& samples) {
        if (samples.front().label == 16) throw std::runtime_error("the third batch");
        return pad(samples);
      },
      options);
  auto epoch = loader.epoch(0);
  EXPECT_EQ(epoch.next()->ids.size(0), 8);
  EXPECT_EQ(epoch.next()->ids.size(0), 8);
  EXPECT_THAT(message_of<std::runtime_error>([&] { epoch.next(); }), HasSubstr("the third batch"));
}

// A sample without a default constructor, a batch that cannot be copied and holds no tensor.
struct Word {
  explicit Word(std::string text) : letters(std::move(text)) {}
  std::string letters;
};

struct Line {
  explicit Line(std::string words) : letters(std::make_unique<std::string>(std::move(words))) {}
  std::unique_ptr<std::string> letters;
};

class Words : public DatasetOf<Word> {
 public:
  std::uint64_t size() const override { return 4; }
  Word get(std::uint64_t index, SampleRandom&) const override { return Word(std::string(index + 1, 'x')); }
};

Line join_words(std::vector<Word> words, SampleRandom& random) {
  std::string line = random.uniform() < 2 ? "" : "never";
  for (const auto& word : words) line += word.letters + ' ';
  return Line(std::move(line));
}

TEST(DataLoaderOf, TakesSamplesAndBatchesOfAnyType) {
  const Words words;
  DataLoaderOf<Line> loader(words, join_words, {.batch_size = 3, .order = Order::sequential});
  std::vector<std::string> lines;
  for (auto& line : loader.epoch(0)) lines.push_back(*line.letters);
  EXPECT_THAT(lines, ElementsAre("x xx xxx ", "xxxx "));
}

TEST(DataLoaderOf, RefusesAGpuForBatchesWithoutTensors) {
  const Words words;
  const RankShard shard({}, c10::Device(c10::kCUDA, 0), {});
  EXPECT_THAT(message_of<UsageError>([&] { DataLoaderOf<Line>(words, join_words, {}, shard); }),
              HasSubstr("must be copied to cuda:0"));
}

}  // namespace
}  // namespace libtrain::data
