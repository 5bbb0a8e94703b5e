#include <libtrain/checkpoint/detail/steps_to_remove.hpp>

#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace libtrain::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Best = CheckpointRetention::Best;

std::vector<KeptCheckpoint> with_metrics(const std::vector<std::optional<double>>& metrics) {
  std::vector<KeptCheckpoint> checkpoints;
  for (const auto& metric : metrics) {
    checkpoints.push_back({.step = 10 * static_cast<std::int64_t>(checkpoints.size() + 1), .metric = metric});
  }
  return checkpoints;
}

TEST(StepsToRemove, KeepsTheLast) {
  const auto four = with_metrics({{}, {}, {}, {}});
  EXPECT_THAT(steps_to_remove(four, {.last = 3}), ElementsAre(10));
  EXPECT_THAT(steps_to_remove(four, {.last = 1}), ElementsAre(10, 20, 30));
  EXPECT_THAT(steps_to_remove(four, {.last = 4}), IsEmpty());
  EXPECT_THAT(steps_to_remove(four, {.last = 5}), IsEmpty());
  EXPECT_THAT(steps_to_remove(four, {.last = std::nullopt}), IsEmpty());
  EXPECT_THAT(steps_to_remove({}, {.last = 1}), IsEmpty());
}

TEST(StepsToRemove, KeepsTheBest) {
  const auto checkpoints = with_metrics({0.5, 0.1, 0.9, {}, 0.5, 0.6});
  EXPECT_THAT(steps_to_remove(checkpoints, {.last = 2, .best = Best::lowest}), ElementsAre(10, 30, 40));
  EXPECT_THAT(steps_to_remove(checkpoints, {.last = 2, .best = Best::highest}), ElementsAre(10, 20, 40));
}

TEST(StepsToRemove, KeepsTheEarlierOfEquallyGoodOnes) {
  EXPECT_THAT(steps_to_remove(with_metrics({0.5, 0.5, 0.7}), {.last = 1}), ElementsAre(20));
}

TEST(StepsToRemove, KeepsTheMarkedOneBesideTheBest) {
  auto checkpoints = with_metrics({0.5, 0.1, 0.9, 0.8});
  checkpoints[0].is_marked = true;
  EXPECT_THAT(steps_to_remove(checkpoints, {.last = 1}), ElementsAre(30));
}

}  // namespace
}  // namespace libtrain::detail
