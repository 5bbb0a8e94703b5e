#include <libtrain/observe/task_metrics.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/fresh_seed.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain {
namespace {

using test::message_of;
using ::testing::HasSubstr;

// What needs random values is compared with scikit-learn and scipy in task_metrics_peer_test.py.

template <typename Counts, typename Sample>
void add_all(Counts& counts, const std::vector<Sample>& samples) {
  for (const auto& [target, predicted] : samples) counts.add(target, predicted);
}

TEST(ClassCounts, HaveTheMetricsOfTwoClasses) {
  // 3 true positives, 1 false positive, 2 false negatives, 4 true negatives.
  ClassCounts counts(2);
  add_all<ClassCounts, std::pair<int, int>>(
      counts, {{1, 1}, {1, 1}, {1, 1}, {0, 1}, {1, 0}, {1, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}});
  EXPECT_EQ(counts.samples(), 10u);
  EXPECT_DOUBLE_EQ(counts.accuracy(), 0.7);
  EXPECT_DOUBLE_EQ(counts.f1(), 6.0 / 9.0);
  EXPECT_DOUBLE_EQ(counts.f1(0), 8.0 / 11.0);
  EXPECT_DOUBLE_EQ(counts.macro_f1(), (6.0 / 9.0 + 8.0 / 11.0) / 2);
  EXPECT_DOUBLE_EQ(counts.matthews(), (3.0 * 4.0 - 1.0 * 2.0) / std::sqrt(4.0 * 5.0 * 5.0 * 6.0));
}

TEST(ClassCounts, OfTheMajorityClassHaveNoCorrelation) {
  ClassCounts counts(2);
  add_all<ClassCounts, std::pair<int, int>>(counts, {{1, 1}, {1, 1}, {0, 1}});
  EXPECT_EQ(counts.matthews(), 0.0);
  EXPECT_EQ(counts.f1(0), 0.0);
  EXPECT_DOUBLE_EQ(counts.f1(1), 0.8);
  ClassCounts perfect(3);
  add_all<ClassCounts, std::pair<int, int>>(perfect, {{0, 0}, {1, 1}, {2, 2}, {2, 2}});
  EXPECT_DOUBLE_EQ(perfect.matthews(), 1.0);
}

TEST(ClassCounts, LeaveClassesThatDoNotOccurOutOfTheMean) {
  ClassCounts counts(5);
  add_all<ClassCounts, std::pair<int, int>>(counts, {{0, 0}, {1, 3}});
  EXPECT_DOUBLE_EQ(counts.macro_f1(), 1.0 / 3.0);
  EXPECT_EQ(counts.f1(4), 0.0);
}

TEST(ClassCounts, WithoutSamplesHaveNoMetrics) {
  const ClassCounts counts(2);
  for (const double metric : {counts.accuracy(), counts.f1(), counts.macro_f1(), counts.matthews()}) {
    EXPECT_TRUE(std::isnan(metric));
  }
}

TEST(ClassCounts, RefuseWhatIsNoClass) {
  EXPECT_THROW(ClassCounts(0), UsageError);
  ClassCounts counts(3);
  EXPECT_THAT(message_of<UsageError>([&] { counts.add(3, 0); }), HasSubstr("there are 3 classes"));
  EXPECT_THROW(counts.add(0, -1), UsageError);
  EXPECT_THROW(counts.f1(3), UsageError);
  EXPECT_THAT(message_of<UsageError>([&] { counts.merge(ClassCounts(2).numbers()); }),
              HasSubstr("Counts of 4 numbers are added to 9"));
}

TEST(SeveralClassCounts, HaveTheMetricsOfIndicators) {
  SeveralClassCounts counts(3);
  add_all<SeveralClassCounts, std::pair<std::vector<float>, std::vector<float>>>(
      counts, {{{1, 0, 1}, {1, 0, 1}}, {{0, 1, 0}, {1, 1, 0}}, {{0, 0, 0}, {0, 0, 0}}, {{1, 0, 0}, {0, 0, 1}}});
  EXPECT_EQ(counts.samples(), 4u);
  EXPECT_DOUBLE_EQ(counts.accuracy(), 0.5);
  // Hits 1, 1, 1; targets 2, 1, 1; predicted 2, 1, 2.
  EXPECT_DOUBLE_EQ(counts.micro_f1(), 2.0 * 3 / (4 + 5));
  EXPECT_DOUBLE_EQ(counts.macro_f1(), (2.0 / 4 + 2.0 / 2 + 2.0 / 3) / 3);
  EXPECT_THROW(counts.add(std::vector<float>{1}, std::vector<float>{1, 0, 0}), UsageError);
  EXPECT_THROW(SeveralClassCounts(0), UsageError);
  EXPECT_TRUE(std::isnan(SeveralClassCounts(2).micro_f1()));
  EXPECT_TRUE(std::isnan(SeveralClassCounts(2).macro_f1()));
  EXPECT_THROW(counts.merge(SeveralClassCounts(2).numbers()), UsageError);
}

TEST(NumberPairs, HaveTheCorrelationsOfPearsonAndSpearman) {
  NumberPairs line;
  for (const double x : {3.0, 1.0, 2.0}) line.add(x, 1 - 2 * x);
  EXPECT_DOUBLE_EQ(line.pearson(), -1.0);
  EXPECT_DOUBLE_EQ(line.spearman(), -1.0);
  NumberPairs curve;
  for (const double x : {1.0, 2.0, 3.0, 4.0}) curve.add(x, std::exp(x));
  EXPECT_DOUBLE_EQ(curve.spearman(), 1.0);
  EXPECT_LT(curve.pearson(), 0.95);
  // Ranks 1.5, 1.5, 3 and 1, 3, 2: deviations -0.5, -0.5, 1 and -1, 1, 0.
  NumberPairs ties;
  add_all<NumberPairs, std::pair<double, double>>(ties, {{5, 1}, {5, 9}, {7, 4}});
  EXPECT_DOUBLE_EQ(ties.spearman(), 0.0);
  EXPECT_DOUBLE_EQ(ties.mean_squared_error(), (16.0 + 16.0 + 9.0) / 3.0);
}

TEST(NumberPairs, OfEqualNumbersHaveNoCorrelation) {
  NumberPairs constant;
  for (const double x : {0.1, 0.2, 0.3, 0.7}) constant.add(x, 0.1);
  EXPECT_EQ(constant.pearson(), 0.0);
  EXPECT_EQ(constant.spearman(), 0.0);
  EXPECT_TRUE(std::isnan(NumberPairs{}.pearson()));
  EXPECT_TRUE(std::isnan(NumberPairs{}.mean_squared_error()));
  constant.add(1, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(std::isnan(constant.pearson()));
  EXPECT_TRUE(std::isnan(constant.spearman()));
}

// However samples are divided among ranks and in which order these are merged.
TEST(TaskMetrics, HaveTheSameBitsForAnyDivision) {
  const test::FreshSeed seed;
  std::mt19937_64 random(seed.value);
  const auto number = [&] { return static_cast<double>(random() % 1000) / 7; };
  for (int trial = 0; trial < 20; ++trial) {
    const std::size_t ranks = 2 + random() % 3;
    ClassCounts classes(4);
    SeveralClassCounts several(4);
    NumberPairs pairs;
    std::vector<ClassCounts> classes_of(ranks, classes);
    std::vector<SeveralClassCounts> several_of(ranks, several);
    std::vector<NumberPairs> pairs_of(ranks, pairs);
    for (int sample = 0; sample < 100; ++sample) {
      const std::size_t rank = random() % ranks;
      const auto label = static_cast<std::int64_t>(random() % 4);
      const auto predicted = static_cast<std::int64_t>(random() % 4);
      classes.add(label, predicted);
      classes_of[rank].add(label, predicted);
      std::vector<float> targets(4);
      targets[static_cast<std::size_t>(label)] = 1;
      const std::vector<float> guesses{1, 0, static_cast<float>(random() % 2), 0};
      several.add(targets, guesses);
      several_of[rank].add(targets, guesses);
      const std::pair<double, double> pair{number(), number()};
      pairs.add(pair.first, pair.second);
      pairs_of[rank].add(pair.first, pair.second);
    }
    const std::size_t last = ranks - 1;
    for (std::size_t rank = 0; rank < last; ++rank) {
      classes_of[last].merge(classes_of[rank].numbers());
      several_of[last].merge(several_of[rank].numbers());
      pairs_of[last].merge(pairs_of[rank].numbers());
    }
    EXPECT_EQ(classes_of[last].numbers(), classes.numbers());
    EXPECT_EQ(several_of[last].numbers(), several.numbers());
    EXPECT_EQ(pairs_of[last].samples(), 100u);
    EXPECT_EQ(pairs_of[last].pearson(), pairs.pearson());
    EXPECT_EQ(pairs_of[last].spearman(), pairs.spearman());
    EXPECT_EQ(pairs_of[last].mean_squared_error(), pairs.mean_squared_error());
  }
}

}  // namespace
}  // namespace libtrain
