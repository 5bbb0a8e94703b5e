// NaN and infinity in gradients, on ranks as threads and under mpirun.

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

using test::expect_all;
using test::mean_rank_plus_one;
using test::message_of;
using test::on_ranks;
using test::Pair;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_last(const Communicator& communicator) {
  return communicator.rank() == communicator.world_size() - 1;
}

// On a device the warning comes some rounds later: DeviceRounds.
TEST(HostOnlySynchronizerNonFinite, SpreadsToAllRanksWhereNobodyChecksWithOneWarning) {
  const test::CapturedLog log{LogLevel::warning};
  on_ranks([&log](Communicator& communicator) {
    communicator.barrier();
    const auto before = log.lines().size();
    communicator.barrier();
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    model.loss(is_last(communicator) ? kNan : 1, 2).backward();
    EXPECT_TRUE(synchronizer.wait());
    EXPECT_TRUE(model.left.grad().isnan().all().item<bool>());
    expect_all(model.right.grad(), 2, "right");
    synchronizer.zero_grad();
    model.loss(kNan, 2).backward();
    EXPECT_TRUE(synchronizer.wait());
    communicator.barrier();
    if (communicator.rank() == 0) {
      EXPECT_EQ(log.lines().size(), before + 1);
      EXPECT_THAT(log.lines(), ::testing::Contains(
                                   AllOf(HasSubstr("'left' holds NaN after round 1"), HasSubstr("NonFinite::fatal"))));
    }
    communicator.barrier();
  });
}

TEST(SynchronizerNonFinite, SkipsTheRoundOnAllRanks) {
  on_ranks([](Communicator& communicator) {
    for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      for (const double odd : {kNan, kInfinity, -kInfinity}) {
        Pair model;
        model.to(type);
        GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}, .non_finite = NonFinite::skipped}};
        model.loss(1, is_last(communicator) ? odd : 1).backward();
        EXPECT_FALSE(synchronizer.wait()) << type << " " << odd;
        EXPECT_FALSE(model.left.grad().defined());
        EXPECT_FALSE(model.right.grad().defined());
        // The next round starts afresh.
        model.loss(2, 4).backward();
        EXPECT_TRUE(synchronizer.wait());
        expect_all(model.left.grad(), 2, "left");
        expect_all(model.right.grad(), 4, "right");
      }
    }
  });
}

TEST(SynchronizerNonFinite, AnOverflowByAWeightIsFoundInALayerThatWasJustUnfrozen) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() < 3) return;  // 30,000 times 3 is more than a float16
    Pair model;
    model.to(at::kHalf);
    model.left.set_requires_grad(false);
    GradientSynchronizer synchronizer{model, communicator, {.non_finite = NonFinite::skipped}};
    model.left.set_requires_grad(true);
    synchronizer.set_samples(is_last(communicator) ? 1 : 0);
    model.loss(is_last(communicator) ? 30000 : 1, 1).backward();
    EXPECT_FALSE(synchronizer.wait());
    EXPECT_FALSE(model.left.grad().defined());
  });
}

TEST(SynchronizerNonFinite, IsFoundInEveryPass) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.non_finite = NonFinite::skipped}};
    {
      const auto guard = synchronizer.no_sync();
      model.loss(is_last(communicator) ? kInfinity : 1, 1).backward();
    }
    model.loss(1, 1).backward();
    EXPECT_FALSE(synchronizer.wait());
    EXPECT_FALSE(model.left.grad().defined());
  });
}

// The optimizer of a replica beside one that has seen the good rounds alone.
template <typename Optimizer, typename Options>
void expect_skipped_rounds_change_nothing(Communicator& communicator, const Options& options) {
  Pair together;
  Pair alone;
  GradientSynchronizer synchronizer{together, communicator, {.non_finite = NonFinite::skipped}};
  Optimizer together_optimizer{together.parameters(), options};
  Optimizer alone_optimizer{alone.parameters(), options};
  for (const double gradient : {1.0, kNan, 2.0, kInfinity, kNan, -3.0}) {
    const double mine = std::isfinite(gradient) || is_last(communicator) ? gradient : 1.0;
    together.loss(mine * (communicator.rank() + 1), 0.5).backward();
    EXPECT_EQ(synchronizer.wait(), std::isfinite(gradient));
    together_optimizer.step();
    synchronizer.zero_grad();
    if (!std::isfinite(gradient)) continue;
    alone_optimizer.zero_grad();
    alone.loss(gradient * mean_rank_plus_one(communicator), 0.5).backward();
    alone_optimizer.step();
  }
  EXPECT_TRUE(torch::allclose(together.left.cpu(), alone.left.cpu(), 1e-5, 1e-6)) << together.left << alone.left;
  EXPECT_TRUE(torch::allclose(together.right.cpu(), alone.right.cpu(), 1e-5, 1e-6)) << together.right << alone.right;
}

TEST(SynchronizerNonFinite, OptimizersChangeNothingInASkippedRound) {
  on_ranks([](Communicator& communicator) {
    expect_skipped_rounds_change_nothing<torch::optim::SGD>(
        communicator, torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
    expect_skipped_rounds_change_nothing<torch::optim::AdamW>(communicator, torch::optim::AdamWOptions(0.1));
  });
}

TEST(SynchronizerNonFinite, EndsTheRunOnAllRanksWhereItIsFatal) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}, .non_finite = NonFinite::fatal}};
    for (int round = 0; round < 2; ++round) {
      model.loss(1, 1).backward();
      EXPECT_TRUE(synchronizer.wait());
      synchronizer.zero_grad();
    }
    model.loss(is_last(communicator) ? kNan : 1, 1).backward();
    std::string message;
    try {
      synchronizer.wait();
    } catch (const Error& error) {
      message = error.what();
      EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
    }
    EXPECT_THAT(message, AllOf(HasSubstr("NaN"), HasSubstr("round 3"), HasSubstr("'left'"), Not(HasSubstr("'right'"))));
    if (communicator.world_size() > 1) {
      EXPECT_THAT(message, HasSubstr(text("rank ", communicator.world_size() - 1)));
    }
    for (const auto& other : communicator.all_gather_bytes(message)) EXPECT_EQ(other, message);
  });
}

TEST(SynchronizerNonFinite, ParametersOfDifferentRanksAreAllNamed) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.non_finite = NonFinite::fatal}};
    const bool is_first = communicator.rank() == 0;
    model.loss(is_first ? kNan : 1, is_last(communicator) ? kInfinity : 1).backward();
    EXPECT_THAT(message_of<Error>([&] { synchronizer.wait(); }), AllOf(HasSubstr("'left'"), HasSubstr("'right'")));
  });
}

}  // namespace
}  // namespace libtrain
