#include <libtrain/train/detail/metric_means.hpp>

#include <cmath>
#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/device.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain::detail {
namespace {

using Means = std::map<std::string, double>;
using test::on_ranks;
using ::testing::HasSubstr;

at::Tensor number(double value) {
  return at::full({}, value, test::on_device(at::kFloat));
}

TEST(MetricMeans, WeighsTheValuesOfAllRanks) {
  on_ranks([](Communicator& communicator) {
    MetricMeans means;
    const int rank = communicator.rank();
    const int ranks = communicator.world_size();
    means.add("loss", number(rank), 2);
    if (rank == 0) means.add("only", number(8), 3);  // a name that other ranks do not have
    const auto numbers = means.gather(communicator, {1.0 * rank, 0.5});
    ASSERT_EQ(std::ssize(numbers), ranks);
    for (int other = 0; other < ranks; ++other)
      EXPECT_EQ(numbers[static_cast<std::size_t>(other)], (std::vector<double>{1.0 * other, 0.5}));
    means.add("loss", number(10), 1);
    means.gather(communicator);
    // ranks times a weight of 3, with the values 0, 0, 10, 1, 1, 10, ...
    const double loss = (ranks * (ranks - 1) + 10.0 * ranks) / (3 * ranks);
    const auto record = means.take_record();
    EXPECT_DOUBLE_EQ(record.at("loss"), loss);
    EXPECT_EQ(record.at("only"), 8);
    EXPECT_EQ(means.take_record(), Means{});
    means.add("loss", number(4), 3);
    means.gather(communicator);
    EXPECT_EQ(means.take_record(), (Means{{"loss", 4}}));
    EXPECT_DOUBLE_EQ(means.take_epoch().at("loss"), (loss + 4) / 2);
    EXPECT_EQ(means.take_epoch(), Means{});
  });
}

TEST(MetricMeans, LeavesOutWhatHasNoWeight) {
  on_ranks([](Communicator& communicator) {
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
    MetricMeans means;
    const auto gathered = [&](double first, double weight) {
      means.add("loss", number(first), weight);
      means.add("loss", number(5), communicator.rank() == 0 ? 1 : 0);
      means.gather(communicator);
      return means.take_record().at("loss");
    };
    EXPECT_EQ(gathered(kNaN, 0), 5);
    EXPECT_TRUE(std::isnan(gathered(kNaN, 1)));
    means.leave_out_non_finite();
    EXPECT_EQ(gathered(kNaN, 1), 5);
    means.take_epoch();
    means.add("loss", number(kNaN), 1);
    means.gather(communicator);
    EXPECT_EQ(means.take_record(), Means{});
    EXPECT_TRUE(std::isnan(means.take_epoch().at("loss")));  // there is no other
  });
}

TEST(MetricMeans, ContinuesFromItsTensors) {
  on_ranks([](Communicator& communicator) {
    MetricMeans means;
    means.add("loss", number(1), 1);
    means.gather(communicator);
    EXPECT_EQ(means.take_record(), (Means{{"loss", 1}}));
    means.add("loss", number(2), 1);
    means.gather(communicator);
    MetricMeans continued;
    continued.add("other", number(1), 1);
    continued.load(means.tensors());
    continued.gather(communicator);
    EXPECT_EQ(continued.take_record(), (Means{{"loss", 2}}));
    EXPECT_EQ(continued.take_epoch(), (Means{{"loss", 1.5}}));
  });
}

TEST(MetricMeans, RefusesWhatIsNotANumber) {
  MetricMeans means;
  EXPECT_THAT(test::message_of<UsageError>([&] { means.add("loss", at::zeros({2}), 1); }),
              HasSubstr("'loss' is a tensor of shape [2]"));
  EXPECT_THAT(test::message_of<UsageError>([&] { means.add("loss", {}, 1); }), HasSubstr("undefined"));
}

}  // namespace
}  // namespace libtrain::detail
