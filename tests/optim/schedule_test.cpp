#include <libtrain/optim/schedule.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::optim {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> factors(const Schedule& schedule, const std::vector<std::int64_t>& steps) {
  std::vector<double> result;
  for (const auto step : steps) result.push_back(schedule(step));
  return result;
}

TEST(Schedule, StepDecayFallsEverySoManySteps) {
  EXPECT_THAT(factors(step_decay({.every = 30, .factor = 0.5}), {-7, 0, 29, 30, 59, 60, 149}),
              ElementsAre(1, 1, 1, 0.5, 0.5, 0.25, 0.0625));
}

TEST(Schedule, MultiStepDecayFallsAtItsMilestones) {
  EXPECT_THAT(factors(multi_step_decay({.milestones = {30, 60, 60, 80}, .factor = 0.5}), {0, 29, 30, 59, 60, 80, 999}),
              ElementsAre(1, 1, 0.5, 0.5, 0.125, 0.0625, 0.0625));
  EXPECT_EQ(multi_step_decay({})(1000), 1.0);
}

TEST(Schedule, CosineDecayHasItsKnownValues) {
  const auto schedule = cosine_decay({.steps = 12, .final_factor = 0.1});
  EXPECT_DOUBLE_EQ(schedule(0), 1.0);
  EXPECT_DOUBLE_EQ(schedule(3), 0.1 + 0.9 * (1 + std::numbers::sqrt2 / 2) / 2);
  EXPECT_DOUBLE_EQ(schedule(4), 0.1 + 0.9 * 0.75);
  EXPECT_DOUBLE_EQ(schedule(6), 0.55);
  EXPECT_DOUBLE_EQ(schedule(8), 0.1 + 0.9 * 0.25);
  EXPECT_DOUBLE_EQ(schedule(12), 0.1);
  EXPECT_DOUBLE_EQ(schedule(10000), 0.1);
}

// PyTorch documents its CosineAnnealingLR as a recursion from step to step.
TEST(Schedule, CosineDecayFollowsPyTorchsRecursion) {
  constexpr int kSteps = 100;
  constexpr double kFinal = 0.05;
  const auto schedule = cosine_decay({.steps = kSteps, .final_factor = kFinal});
  double rate = 1;
  for (int step = 0; step + 1 < kSteps; ++step) {
    EXPECT_NEAR(schedule(step), rate, 1e-12) << "step " << step;
    const auto cosine = [](int at) { return std::cos(std::numbers::pi * at / kSteps); };
    rate = kFinal + (rate - kFinal) * (1 + cosine(step + 1)) / (1 + cosine(step));
  }
}

TEST(Schedule, PolynomialDecayIsALineOrACurve) {
  EXPECT_THAT(factors(polynomial_decay({.steps = 4}), {0, 1, 2, 3, 4, 5}), ElementsAre(1, 0.75, 0.5, 0.25, 0, 0));
  EXPECT_THAT(factors(polynomial_decay({.steps = 4, .power = 2, .final_factor = 0.5}), {0, 2, 4}),
              ElementsAre(1, 0.625, 0.5));
}

TEST(Schedule, WarmUpLeadsInAStraightLineToWhatFollows) {
  EXPECT_THAT(factors(warm_up({.steps = 4, .first_factor = 0.5}, constant()), {-1, 0, 1, 2, 3, 4, 5}),
              ElementsAre(0.5, 0.5, 0.625, 0.75, 0.875, 1, 1));
  // What follows counts from the run's first step: it is not put off by the warm-up.
  const auto schedule = warm_up({.steps = 2}, polynomial_decay({.steps = 4}));
  EXPECT_THAT(factors(schedule, {0, 1, 2, 3, 4}), ElementsAre(0, 0.25, 0.5, 0.25, 0));
  EXPECT_EQ(warm_up({.steps = 0, .first_factor = 0.5}, constant())(0), 1.0);
}

TEST(Schedule, AScheduleOfEpochsIsConstantWithinEach) {
  const auto halved = by_epoch(step_decay({.every = 1, .factor = 0.5}), 3);
  EXPECT_THAT(factors(halved, {-5, 0, 2, 3, 5, 6, 9}), ElementsAre(1, 1, 1, 0.5, 0.5, 0.25, 0.125));
  const auto milestones = by_epoch(multi_step_decay({.milestones = {30, 60}}), 100);
  const auto same = multi_step_decay({.milestones = {3000, 6000}});
  for (std::int64_t step = 0; step < 9000; ++step) ASSERT_EQ(milestones(step), same(step)) << step;
  EXPECT_THAT(factors(by_epoch(polynomial_decay({.steps = 4}), 1), {0, 1, 4}), ElementsAre(1, 0.75, 0));
  // A warm-up by the step before a decay by the epoch.
  EXPECT_THAT(factors(warm_up({.steps = 2}, by_epoch(step_decay({.every = 1, .factor = 0.5}), 3)), {0, 1, 2, 3}),
              ElementsAre(0, 0.5, 1, 0.5));
}

// Steps below 0 count as 0, also where there is nothing to divide them by.
TEST(Schedule, StepsBeforeTheFirstAreTheFirst) {
  const auto line = polynomial_decay({.steps = 40});
  for (const auto& schedule :
       {constant(), step_decay({.every = 1}), multi_step_decay({.milestones = {0, 2}}), cosine_decay({.steps = 1}),
        line, warm_up({.steps = 0, .first_factor = 0.5}, line), warm_up({.steps = 3, .first_factor = 0.5}, line)}) {
    for (const std::int64_t step : {std::int64_t{-1}, std::int64_t{-1000}, INT64_MIN}) {
      EXPECT_EQ(schedule(step), schedule(0)) << step;
    }
  }
  EXPECT_EQ(multi_step_decay({.milestones = {0}})(0), 0.1);
}

TEST(Schedule, TheShortestRunsHaveTheirFirstFactorAndTheirLast) {
  EXPECT_THAT(factors(cosine_decay({.steps = 1, .final_factor = 0.25}), {0, 1, 2}), ElementsAre(1, 0.25, 0.25));
  EXPECT_THAT(factors(polynomial_decay({.steps = 1, .final_factor = 0.25}), {0, 1, 2}), ElementsAre(1, 0.25, 0.25));
  EXPECT_THAT(factors(polynomial_decay({.steps = 2, .power = 0.5}), {0, 1, 2}),
              ElementsAre(1, DoubleEq(std::numbers::sqrt2 / 2), 0));
  EXPECT_THAT(factors(step_decay({.every = 1, .factor = 0.5}), {0, 1, 2}), ElementsAre(1, 0.5, 0.25));
  EXPECT_THAT(factors(warm_up({.steps = 1}, cosine_decay({.steps = 2})), {0, 1, 2}), ElementsAre(0, DoubleEq(0.5), 0));
  EXPECT_THAT(factors(warm_up({.steps = 0}, cosine_decay({.steps = 1})), {0, 1}), ElementsAre(1, 0));
}

TEST(Schedule, TheLongestRunsStayFinite) {
  constexpr auto kLast = std::numeric_limits<std::int64_t>::max();
  EXPECT_DOUBLE_EQ(cosine_decay({.steps = kLast})(kLast), 0.0);
  EXPECT_DOUBLE_EQ(cosine_decay({.steps = kLast})(kLast / 2), 0.5);
  EXPECT_EQ(step_decay({.every = 1, .factor = 0.5})(kLast), 0.0);
  EXPECT_EQ(warm_up({.steps = kLast}, constant())(0), 0.0);
}

// Its rates would be 0 from the first step to the last.
TEST(Schedule, AWarmUpAsLongAsTheDecayIsRefused) {
  for (const std::int64_t steps : {10, 11}) {
    EXPECT_THAT(message_of<UsageError>([&] { warm_up({.steps = steps}, cosine_decay({.steps = 10})); }),
                AllOf(HasSubstr(text("WarmUp::steps is ", steps)), HasSubstr("decayed to a factor of 0.")));
  }
  EXPECT_THAT(message_of<UsageError>([] {
                warm_up({.steps = 4, .first_factor = 0.1}, polynomial_decay({.steps = 4, .final_factor = 0.1}));
              }),
              HasSubstr("decayed to a factor of 0.1."));
  // Down to what goes on for ever is a choice.
  EXPECT_THAT(factors(warm_up({.steps = 2, .first_factor = 2}, constant()), {0, 1, 2}), ElementsAre(2, 1.5, 1));
  EXPECT_THAT(factors(warm_up({.steps = 9}, polynomial_decay({.steps = 10})), {0, 9}), ElementsAre(0, DoubleEq(0.1)));
  // 1 / world_size on a single rank: there is nothing to rise to.
  EXPECT_THAT(factors(warm_up({.steps = 5, .first_factor = 1}, polynomial_decay({.steps = 10})), {0, 5}),
              ElementsAre(1, DoubleEq(0.5)));
}

// Eight ranks, five epochs of 100 steps: from the rate of one rank to eight times that.
TEST(Schedule, WarmUpStartsAtTheRateOfASingleRank) {
  const auto rate = scaled_linearly(0.1, 8);
  const auto schedule = warm_up({.steps = 500, .first_factor = 1.0 / 8}, multi_step_decay({.milestones = {3000}}));
  EXPECT_THAT(rate * schedule(0), DoubleEq(0.1));
  EXPECT_THAT(rate * schedule(250), DoubleEq(0.45));
  EXPECT_THAT(rate * schedule(500), DoubleEq(0.8));
  EXPECT_THAT(rate * schedule(3000), DoubleEq(0.08));
}

TEST(Schedule, RatesAreScaledByTheNumberOfRanks) {
  EXPECT_DOUBLE_EQ(scaled_linearly(0.1, 1), 0.1);
  EXPECT_DOUBLE_EQ(scaled_linearly(0.1, 32), 3.2);
  EXPECT_DOUBLE_EQ(scaled_by_square_root(0.1, 16), 0.4);
}

TEST(Schedule, BadOptionsAreNamed) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message_of<UsageError>([] { step_decay({.every = 0}); }), HasSubstr("StepDecay::every is 0"));
  EXPECT_THAT(message_of<UsageError>([] { step_decay({.every = 1, .factor = 0}); }), HasSubstr("StepDecay::factor"));
  EXPECT_THAT(message_of<UsageError>([] { multi_step_decay({.milestones = {60, 30}}); }), HasSubstr("60, 30"));
  EXPECT_THAT(message_of<UsageError>([] { cosine_decay({.steps = -3}); }), HasSubstr("CosineDecay::steps is -3"));
  EXPECT_THROW(cosine_decay({.steps = 1, .final_factor = kNan}), UsageError);
  EXPECT_THROW(polynomial_decay({.steps = 1, .power = -1}), UsageError);
  EXPECT_THROW(warm_up({.steps = -1}, constant()), UsageError);
  EXPECT_THROW(warm_up({.steps = 1, .first_factor = -0.5}, constant()), UsageError);
  EXPECT_THROW(warm_up({.steps = 1}, Schedule{}), UsageError);
  EXPECT_THROW(by_epoch(Schedule{}, 1), UsageError);
  EXPECT_THAT(message_of<UsageError>([] { by_epoch(constant(), 0); }), HasSubstr("steps_per_epoch of by_epoch() is 0"));
  EXPECT_THAT(message_of<UsageError>([] { warm_up({.steps = 3}, [](std::int64_t) { return kNan; }); }),
              HasSubstr("at step 3 is nan"));
  EXPECT_THAT(message_of<UsageError>([] { scaled_linearly(kNan, 2); }), HasSubstr("learning rate is nan"));
  EXPECT_THROW(scaled_by_square_root(-0.1, 2), UsageError);
  EXPECT_THROW(scaled_linearly(0.1, 0), UsageError);
  EXPECT_THROW(scaled_by_square_root(0.1, -2), UsageError);
}

}  // namespace
}  // namespace libtrain::optim
