#include <libtrain/train/mean_over_ranks.hpp>

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/device.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using test::device;
using test::message_of;
using test::on_ranks;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The mean of 0, 1, ..., N - 1.
double mean_rank(const Communicator& communicator) {
  return (communicator.world_size() - 1) / 2.0;
}

TEST(MeanOverRanks, AveragesNumbersInFloat64) {
  on_ranks([](Communicator& communicator) {
    const double rank = communicator.rank();
    const double mean = mean_rank(communicator);
    // 2^-40 is lost beside 1 in float32.
    constexpr double kTiny = 0x1p-40;
    EXPECT_EQ(mean_over_ranks(1 + kTiny, communicator), 1 + kTiny);
    EXPECT_DOUBLE_EQ(mean_over_ranks(rank, communicator), mean);
    EXPECT_THAT(mean_over_ranks(std::vector{1.5, rank, -4 * rank}, communicator), ElementsAre(1.5, mean, -4 * mean));
    EXPECT_THAT(mean_over_ranks(std::vector<double>{}, communicator), IsEmpty());
  });
}

TEST(MeanOverRanks, AveragesTensorsOfAnyShapeAndType) {
  on_ranks([](Communicator& communicator) {
    const auto rank = communicator.rank();
    const auto mean = mean_rank(communicator);
    const auto loss = at::full({}, static_cast<double>(rank), at::TensorOptions{device()}.requires_grad(true));
    const auto mean_loss = mean_over_ranks(loss, communicator);
    EXPECT_EQ(mean_loss.device(), loss.device());
    EXPECT_FALSE(mean_loss.requires_grad());
    EXPECT_EQ(mean_loss.dim(), 0);
    EXPECT_EQ(mean_loss.scalar_type(), at::kDouble);
    EXPECT_EQ(mean_loss.item<double>(), mean);
    EXPECT_EQ(loss.item<float>(), static_cast<float>(rank));
    // Not contiguous, whole numbers.
    const auto counts = (at::arange(6, at::kLong).reshape({2, 3}) * (rank + 1)).to(device()).t();
    const auto expected = at::arange(6, at::kDouble).reshape({2, 3}).t() * (mean + 1);
    EXPECT_TRUE(mean_over_ranks(counts, communicator).cpu().equal(expected));
    // In host memory, with communicators for GPUs, too.
    EXPECT_EQ(mean_over_ranks(at::full({1}, static_cast<double>(rank)), communicator).item<double>(), mean);
  });
}

TEST(MeanOverRanks, ShowsTheFailureOfOneRankOnAll) {
  on_ranks([](Communicator& communicator) {
    const bool is_last = communicator.rank() + 1 == communicator.world_size();
    constexpr auto kNan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(std::isnan(mean_over_ranks(is_last ? kNan : 1.0, communicator)));
    EXPECT_THAT(message_of<UsageError>([&] { mean_over_ranks(at::Tensor{}, communicator); }),
                HasSubstr("undefined tensor"));
    if (communicator.world_size() == 1) return;
    const std::vector<double> numbers(is_last ? 3 : 1);
    EXPECT_THAT(message_of<UsageError>([&] { mean_over_ranks(numbers, communicator); }),
                HasSubstr("a list of length 1 on one rank and of length 3 on another"));
  });
}

}  // namespace
}  // namespace libtrain
