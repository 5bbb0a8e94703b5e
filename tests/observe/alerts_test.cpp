#include <libtrain/observe/alerts.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace libtrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Alert, IsARecord) {
  const auto line = nlohmann::json::parse(Alert{"slow_rank", 7, "Rank 1 is slow."}.record().line(0.0));
  EXPECT_EQ(line["event"], "alert");
  EXPECT_EQ(line["step"], 7);
  EXPECT_EQ(line["kind"], "slow_rank");
  EXPECT_EQ(line["message"], "Rank 1 is slow.");
}

// A falling loss that scatters by a tenth.
double usual_loss(std::int64_t step) {
  return std::exp(-static_cast<double>(step) / 1000.0) * (1.0 + 0.1 * std::sin(static_cast<double>(step * step)));
}

TEST(LossWatch, IsSilentWhileTheLossFalls) {
  LossWatch watch;
  for (std::int64_t step = 0; step < 5000; ++step) ASSERT_FALSE(watch.observe(step, usual_loss(step))) << step;
}

TEST(LossWatch, TellsOnceOfNaN) {
  LossWatch watch;
  watch.observe(0, 1.0);
  const auto alert = watch.observe(1, std::nan(""));
  ASSERT_TRUE(alert);
  EXPECT_EQ(alert->kind, "loss_not_finite");
  EXPECT_EQ(alert->step, 1);
  EXPECT_THAT(alert->message, AllOf(HasSubstr("nan at step 1"), HasSubstr("learning rate")));
  EXPECT_FALSE(watch.observe(2, std::numeric_limits<double>::infinity()));
}

TEST(LossWatch, TellsOnceOfAJumpThatLasts) {
  LossWatch watch;
  for (std::int64_t step = 0; step < 1000; ++step) ASSERT_FALSE(watch.observe(step, usual_loss(step)));
  for (std::int64_t step = 1000; step < 1004; ++step) ASSERT_FALSE(watch.observe(step, 3.0));
  const auto alert = watch.observe(1004, 3.0);
  ASSERT_TRUE(alert);
  EXPECT_EQ(alert->kind, "loss_jump");
  EXPECT_THAT(alert->message, AllOf(HasSubstr("to 3"), HasSubstr("at step 1000"), HasSubstr("checkpoint")));
  for (std::int64_t step = 1005; step < 1100; ++step) ASSERT_FALSE(watch.observe(step, 3.0));
}

TEST(LossWatch, NamesTheFirstStepOfAJump) {
  LossWatch watch{{.window = 10, .steps_in_a_row = 2}};
  for (int step = 10; step <= 200; step += 10) ASSERT_FALSE(watch.observe(step, 1.0));
  ASSERT_FALSE(watch.observe(210, 9.0));
  const auto alert = watch.observe(220, 9.0);
  ASSERT_TRUE(alert);
  EXPECT_THAT(alert->message, HasSubstr("at step 201."));
}

TEST(LossWatch, ForgivesSingleBatches) {
  LossWatch watch;
  for (std::int64_t step = 0; step < 3000; ++step) {
    ASSERT_FALSE(watch.observe(step, step % 50 < 4 ? 100.0 : usual_loss(step)));
  }
}

TEST(LossWatch, IgnoresScatterAroundASettledLoss) {
  LossWatch watch;
  for (std::int64_t step = 0; step < 1000; ++step) watch.observe(step, 0.5);
  for (std::int64_t step = 1000; step < 2000; ++step) ASSERT_FALSE(watch.observe(step, 0.6));
}

TEST(LossWatch, UnderstandsNegativeLosses) {
  LossWatch watch;
  for (std::int64_t step = 0; step < 1000; ++step) ASSERT_FALSE(watch.observe(step, step % 3 == 0 ? -4.02 : -4.0));
  std::optional<Alert> alert;
  for (std::int64_t step = 1000; step < 1005; ++step) alert = watch.observe(step, -1.0);
  EXPECT_TRUE(alert);
}

std::optional<Alert> after(SlowRankWatch& watch, int steps, const std::vector<double>& seconds) {
  std::optional<Alert> alert;
  for (int step = 0; step < steps; ++step) {
    if (auto found = watch.observe(step, seconds)) alert = found;
  }
  return alert;
}

TEST(SlowRankWatch, NamesTheRankOnce) {
  SlowRankWatch watch;
  const std::vector<double> seconds{0.1, 0.11, 0.15, 0.1};
  EXPECT_FALSE(after(watch, 49, seconds));
  const auto alert = after(watch, 1, seconds);
  ASSERT_TRUE(alert);
  EXPECT_EQ(alert->kind, "slow_rank");
  EXPECT_THAT(alert->message, AllOf(HasSubstr("Rank 2"), HasSubstr("50% longer"), HasSubstr("Compare its host")));
  EXPECT_FALSE(after(watch, 1000, seconds));
}

TEST(SlowRankWatch, ComparesTwoRanks) {
  SlowRankWatch watch;
  const auto alert = after(watch, 50, {0.2, 0.1});
  ASSERT_TRUE(alert);
  EXPECT_THAT(alert->message, HasSubstr("Rank 0"));
}

TEST(SlowRankWatch, IsSilentAboutSmallOrPassingDifferences) {
  SlowRankWatch watch;
  EXPECT_FALSE(after(watch, 1000, {0.1, 0.119, 0.1}));
  EXPECT_FALSE(after(watch, 1000, {0.0005, 0.0012, 0.0005}));
  for (int round = 0; round < 100; ++round) {
    EXPECT_FALSE(after(watch, 20, {0.1, 0.2, 0.1}));
    EXPECT_FALSE(after(watch, 10, {0.1, 0.1, 0.1}));
  }
  EXPECT_FALSE(after(watch, 1000, {0.5}));
  EXPECT_FALSE(after(watch, 1000, {}));
}

TEST(SlowRankWatch, CountsARankThatIsSlowNearlyAlways) {
  SlowRankWatch watch;
  std::optional<Alert> alert;
  for (int step = 0; step < 200 && !alert; ++step) {
    alert = watch.observe(step, std::vector<double>{0.1, step % 10 == 0 ? 0.1 : 0.2, 0.1});
  }
  EXPECT_TRUE(alert);
}

TEST(StarvationWatch, TellsOnceAfterTheFirstSteps) {
  StarvationWatch watch;
  for (int step = 0; step < 199; ++step) ASSERT_FALSE(watch.observe(step, 0.1, 0.04)) << step;
  const auto alert = watch.observe(199, 0.1, 0.04);
  ASSERT_TRUE(alert);
  EXPECT_EQ(alert->kind, "data_starvation");
  EXPECT_THAT(alert->message, AllOf(HasSubstr("40%"), HasSubstr("last 100 steps"), HasSubstr("workers")));
  for (int step = 200; step < 1000; ++step) ASSERT_FALSE(watch.observe(step, 0.1, 0.04));
}

TEST(StarvationWatch, IsSilentWhenTheWaitIsShortOrAtTheBeginning) {
  StarvationWatch watch;
  for (int step = 0; step < 100; ++step) ASSERT_FALSE(watch.observe(step, 1.0, 0.9));
  for (int step = 100; step < 1000; ++step) ASSERT_FALSE(watch.observe(step, 0.1, 0.009));
  StarvationWatch idle;
  for (int step = 0; step < 1000; ++step) ASSERT_FALSE(idle.observe(step, 0.0, 0.0));
}

// A record of every tenth step.
TEST(StarvationWatch, CountsStepsAndNotObservations) {
  StarvationWatch watch{{.steps = 5}};
  std::optional<Alert> alert;
  for (int step = 10; step <= 100; step += 10) alert = watch.observe(step, 0.1, 0.04);
  ASSERT_TRUE(alert);
  EXPECT_THAT(alert->message, HasSubstr("last 50 steps"));
}

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

TEST(MemoryWatch, TellsOnceOfSteadyGrowthAndWhenItEnds) {
  MemoryWatch watch;
  std::optional<Alert> alert;
  int step = 0;
  for (; step < 10000 && !alert; ++step) alert = watch.observe(step, kGiB + step * (std::int64_t{1} << 20), 12 * kGiB);
  ASSERT_TRUE(alert);
  EXPECT_EQ(step, 900);
  EXPECT_EQ(alert->kind, "memory_growth");
  EXPECT_THAT(alert->message, AllOf(HasSubstr("from 1.1 GiB to 1.9 GiB in the last 800 steps"),
                                    HasSubstr("limit of 12.0 GiB in about 10365 steps"), HasSubstr("item()")));
  for (; step < 10000; ++step) ASSERT_FALSE(watch.observe(step, kGiB + step * (std::int64_t{1} << 20), 0));
}

TEST(MemoryWatch, CountsStepsAndNotObservations) {
  MemoryWatch watch{{.steps = 2}};
  std::optional<Alert> alert;
  for (int step = 10; step <= 180; step += 10) alert = watch.observe(step, kGiB + step * kGiB / 100, 12 * kGiB);
  ASSERT_TRUE(alert);
  EXPECT_THAT(alert->message, AllOf(HasSubstr("in the last 160 steps"), HasSubstr("in about 920 steps")));
}

TEST(MemoryWatch, IsSilentAboutALevelThatSwingsAndAboutLittle) {
  MemoryWatch swings;
  MemoryWatch creeps;
  for (std::int64_t step = 0; step < 20000; ++step) {
    ASSERT_FALSE(swings.observe(step, kGiB + (step % 700) * (1 << 20), 0));
    ASSERT_FALSE(creeps.observe(step, kGiB + step * 1000, 0));
  }
}

TEST(ThrottlingWatch, TellsOnceOfAQuotaThatStopsThreads) {
  ThrottlingWatch watch;
  EXPECT_FALSE(watch.observe_quota(0, 1000, 1000));  // before the run
  EXPECT_FALSE(watch.observe_quota(1, 1050, 1050));  // too few periods
  const auto alert = watch.observe_quota(2, 1200, 1080);
  ASSERT_TRUE(alert);
  EXPECT_EQ(alert->kind, "cpu_throttling");
  EXPECT_THAT(alert->message, AllOf(HasSubstr("40%"), HasSubstr("CPU limit")));
  EXPECT_FALSE(watch.observe_quota(3, 2000, 1800));
}

TEST(ThrottlingWatch, IsSilentBelowItsShare) {
  ThrottlingWatch watch;
  for (std::int64_t look = 0; look < 100; ++look) ASSERT_FALSE(watch.observe_quota(look, 1000 * look, 40 * look));
}

TEST(ThrottlingWatch, TellsOnceOfReducedClocks) {
  ThrottlingWatch watch;
  EXPECT_FALSE(watch.observe_clocks(0, 5000));
  EXPECT_FALSE(watch.observe_clocks(1, 5100));
  const auto alert = watch.observe_clocks(2, 5101);
  ASSERT_TRUE(alert);
  EXPECT_EQ(alert->kind, "clock_throttling");
  EXPECT_THAT(alert->message, AllOf(HasSubstr("101 times"), HasSubstr("cooling")));
  EXPECT_FALSE(watch.observe_clocks(3, 9000));
}

}  // namespace
}  // namespace libtrain
