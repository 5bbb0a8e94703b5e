// Ranks with different numbers of samples and of batches, on ranks as threads and under mpirun.

#include <cstdint>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/text.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/expect_told.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/models.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

using test::device;
using test::expect_all;
using test::make_batch;
using test::make_model;
using test::on_device;
using test::on_ranks;
using test::Pair;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The average of `value(rank)` over ranks of which each counts `samples(rank)` times.
template <typename Samples, typename Value>
double mean_over_samples(int world_size, const Samples& samples, const Value& value) {
  double sum = 0;
  double count = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    if (samples(rank) == 0) continue;
    sum += static_cast<double>(samples(rank)) * static_cast<double>(value(rank));
    count += static_cast<double>(samples(rank));
  }
  return sum / count;
}

// What PyTorch makes of an empty batch: a loss of NaN, and gradients of zero that are averaged like any other.
// On a device the warning comes some rounds later: DeviceRounds.
TEST(HostOnlySynchronizerUneven, AnEmptyBatchWithoutSamplesIsNoticed) {
  const test::CapturedLog log{LogLevel::warning};
  on_ranks([&log](Communicator& communicator) {
    const int ranks = communicator.world_size();
    if (ranks == 1) return;
    auto model = on_device(torch::nn::Linear{2, 3});
    GradientSynchronizer synchronizer{*model, communicator};
    const std::int64_t rows = test::is_odd_one(communicator) ? 0 : 4;
    const auto round = [&] {
      const auto outputs = model(torch::ones({rows, 2}, device()));
      const auto loss = torch::nn::functional::cross_entropy(outputs, torch::zeros({rows}, on_device(at::kLong)));
      EXPECT_EQ(loss.isnan().item<bool>(), rows == 0);
      loss.backward();
      EXPECT_TRUE(synchronizer.wait());
      synchronizer.zero_grad();
    };
    communicator.barrier();
    const auto before = log.lines().size();
    communicator.barrier();
    synchronizer.set_samples(rows);
    round();
    round();
    round();
    communicator.barrier();
    // Once, and by the rank itself; the threads of a group share a log.
    if (test::is_odd_one(communicator)) {
      EXPECT_EQ(log.lines().size(), before + 1);
      EXPECT_THAT(log.lines(),
                  ::testing::Contains(::testing::AllOf(HasSubstr(text("Every gradient of rank ", ranks - 1)),
                                                       HasSubstr("in round 2"), HasSubstr("set_samples("))));
    }
    communicator.barrier();
  });
}

constexpr auto rank_plus_one = [](int rank) { return rank + 1; };

TEST(SynchronizerUneven, WeighsGradientsBySamples) {
  on_ranks([](Communicator& communicator) {
    const int rank = communicator.rank();
    const int world_size = communicator.world_size();
    const auto samples = [](int of) { return 3 * of + 1; };
    std::int64_t total = 0;
    for (int other = 0; other < world_size; ++other) total += samples(other);
    for (const auto overlap : {Overlap::backward, Overlap::none}) {
      Pair model;
      GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}, .overlap = overlap}};
      for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(synchronizer.set_samples(samples(rank)), total);
        model.loss(rank + 1, 7).backward();
        EXPECT_TRUE(synchronizer.wait());
        expect_all(model.left.grad(), mean_over_samples(world_size, samples, rank_plus_one), "left");
        expect_all(model.right.grad(), 7, "right");
        synchronizer.zero_grad();
      }
    }
  });
}

TEST(SynchronizerUneven, WeightsHoldForOneRound) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    const int world_size = communicator.world_size();
    const auto once = [](int) { return 1; };
    for (int round = 0; round < 4; ++round) {
      if (round % 2 == 0) synchronizer.set_samples(communicator.rank() + 1);
      model.loss(communicator.rank() + 1, 1).backward();
      EXPECT_TRUE(synchronizer.wait());
      const double wanted = round % 2 == 0 ? mean_over_samples(world_size, rank_plus_one, rank_plus_one)
                                           : mean_over_samples(world_size, once, rank_plus_one);
      expect_all(model.left.grad(), wanted, "left");
      synchronizer.zero_grad();
    }
  });
}

TEST(SynchronizerUneven, BatchesOfDifferentSizesEqualOneProcess) {
  on_ranks([](Communicator& communicator) {
    // Rank r has 2 (r + 1) samples, after the r (r + 1) of those before it.
    const std::int64_t rank = communicator.rank();
    const std::int64_t ranks = communicator.world_size();
    const auto mine = 2 * (rank + 1);
    auto together = make_model("mlp", at::kDouble, 1);
    auto alone = make_model("mlp", at::kDouble, 1);
    GradientSynchronizer synchronizer{*together.module, communicator, {.buckets = {400, 100}}};
    const auto options = torch::optim::SGDOptions(0.05).momentum(0.9);
    torch::optim::SGD together_sgd{together.module->parameters(), options};
    torch::optim::SGD alone_sgd{alone.module->parameters(), options};
    for (std::uint64_t step = 0; step < 5; ++step) {
      const auto whole = make_batch(alone, ranks * (ranks + 1), at::kDouble, 10 + step);
      alone_sgd.zero_grad();
      torch::mse_loss(alone.forward(whole.inputs), whole.targets).backward();
      alone_sgd.step();

      const auto begin = rank * (rank + 1);
      EXPECT_EQ(synchronizer.set_samples(mine), ranks * (ranks + 1));
      const auto outputs = together.forward(whole.inputs.narrow(0, begin, mine));
      torch::mse_loss(outputs, whole.targets.narrow(0, begin, mine)).backward();
      synchronizer.wait();
      together_sgd.step();
      synchronizer.zero_grad();
    }
    const auto wanted = alone.module->parameters();
    const auto actual = together.module->parameters();
    for (std::size_t index = 0; index < wanted.size(); ++index) {
      EXPECT_TRUE(torch::allclose(actual[index].cpu(), wanted[index].cpu(), 1e-7, 1e-9)) << "parameter " << index;
    }
  });
}

TEST(SynchronizerUneven, ARankWithoutSamplesCountsForNothing) {
  on_ranks([](Communicator& communicator) {
    const int world_size = communicator.world_size();
    if (world_size == 1) return;
    const auto samples = [world_size](int rank) { return rank == world_size - 1 ? 0 : rank + 1; };
    const bool is_empty = samples(communicator.rank()) == 0;
    for (const auto non_finite : {NonFinite::unchecked, NonFinite::skipped, NonFinite::fatal}) {
      Pair model;
      GradientSynchronizer synchronizer{model, communicator, {.non_finite = non_finite}};
      for (int round = 0; round < 2; ++round) {
        synchronizer.set_samples(samples(communicator.rank()));
        // What the mean over an empty batch gives.
        model.loss(is_empty ? kNan : communicator.rank() + 1, is_empty ? kNan : 2).backward();
        EXPECT_TRUE(synchronizer.wait());
        expect_all(model.left.grad(), mean_over_samples(world_size, samples, rank_plus_one), "left");
        expect_all(model.right.grad(), 2, "right");
        synchronizer.zero_grad();
      }
    }
  });
}

TEST(SynchronizerUneven, SamplesMayBeSetAfterTheFirstMicroStep) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    const int mine = communicator.rank() + 1;
    {
      const auto guard = synchronizer.no_sync();
      model.loss(mine, 1).backward();
    }
    synchronizer.set_samples(mine);
    model.loss(mine, 1).backward();
    synchronizer.wait();
    const int world_size = communicator.world_size();
    expect_all(model.left.grad(), 2 * mean_over_samples(world_size, rank_plus_one, rank_plus_one), "left");
    expect_all(model.right.grad(), 2, "right");
  });
}

// Rank r has 2 (r + 1) batches of r + 1 samples, whose gradient is r + 1.
double weight_after(int epochs, int world_size) {
  double weight = 1;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (int round = 0; round < 2 * world_size; ++round) {
      const auto samples = [round](int rank) { return round < 2 * (rank + 1) ? rank + 1 : 0; };
      weight -= mean_over_samples(world_size, samples, rank_plus_one);
    }
  }
  return weight;
}

TEST(SynchronizerUneven, RanksThatRunOutOfBatchesJoinTheOthers) {
  on_ranks([](Communicator& communicator) {
    constexpr int kEpochs = 2;
    const int mine = communicator.rank() + 1;
    for (const auto overlap : {Overlap::backward, Overlap::none}) {
      Pair model;
      GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}, .overlap = overlap}};
      torch::optim::SGD optimizer{model.parameters(), torch::optim::SGDOptions(1)};
      for (int epoch = 0; epoch < kEpochs; ++epoch) {
        for (int batch = 0; batch < 2 * mine; ++batch) {
          synchronizer.set_samples(mine);
          model.loss(mine, 0.5).backward();
          EXPECT_TRUE(synchronizer.wait());
          optimizer.step();
          synchronizer.zero_grad();
        }
        while (synchronizer.join()) {
          expect_all(model.right.grad(), 0.5, "right");
          optimizer.step();
        }
        synchronizer.zero_grad();
      }
      EXPECT_EQ(synchronizer.rounds(), kEpochs * 2 * communicator.world_size());
      expect_all(model.left, weight_after(kEpochs, communicator.world_size()), "left");
      expect_all(model.right, 1 - 0.5 * kEpochs * 2 * communicator.world_size(), "right");
    }
  });
}

TEST(SynchronizerUneven, RanksThatJoinWaitForOthersWhoseBatchIsEmpty) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    const bool is_first = communicator.rank() == 0;
    for (const int samples : {0, 2}) {
      if (is_first) {
        synchronizer.set_samples(samples);
        model.loss(1, 2).backward();
        EXPECT_TRUE(synchronizer.wait());
      } else {
        EXPECT_TRUE(synchronizer.join());
      }
      expect_all(model.left.grad(), samples == 0 ? 0 : 1, "left");
      synchronizer.zero_grad();
    }
    EXPECT_FALSE(synchronizer.join());
  });
}

TEST(SynchronizerUneven, JoiningKeepsMomentumEqual) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    torch::optim::SGD optimizer{model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};
    for (int batch = 0; batch < 1 + 2 * communicator.rank(); ++batch) {
      synchronizer.set_samples(1);
      model.loss(batch + 1, communicator.rank() + 1).backward();
      synchronizer.wait();
      optimizer.step();
      synchronizer.zero_grad();
    }
    while (synchronizer.join()) optimizer.step();
    const auto mine = torch::cat({model.left.detach(), model.right.detach()});
    const auto of_rank_0 = mine.clone();
    communicator.broadcast(of_rank_0, 0).wait();
    EXPECT_TRUE(torch::equal(mine.cpu(), of_rank_0.cpu()));
  });
}

// Two rounds, of which no rank uses `left` in the second. With weight decay a gradient of zero changes a parameter, and
// an undefined one does not.
void expect_equal_steps_after_zero_grad(bool set_to_none) {
  on_ranks([set_to_none](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.unused = UnusedParameters::allowed}};
    torch::optim::SGD optimizer{model.parameters(), torch::optim::SGDOptions(0.1).weight_decay(0.5)};
    for (int batch = 0; communicator.rank() == 0 && batch < 2; ++batch) {
      synchronizer.set_samples(1);
      (batch == 0 ? model.loss(1, 1) : model.right.sum()).backward();
      synchronizer.wait();
      optimizer.step();
      optimizer.zero_grad(set_to_none);
    }
    while (synchronizer.join()) optimizer.step();
    EXPECT_EQ(synchronizer.rounds(), 2);
    const double after_one = 1 - 0.1 * (1 + 0.5);
    expect_all(model.left, set_to_none ? after_one : after_one * (1 - 0.1 * 0.5), "left");
  });
}

TEST(SynchronizerUneven, JoiningStepsNoParameterThatNoRankHasUsed) {
  expect_equal_steps_after_zero_grad(/*set_to_none=*/true);
}

TEST(SynchronizerUneven, JoiningStepsAsRanksDoWhoseGradientsStayZero) {
  expect_equal_steps_after_zero_grad(/*set_to_none=*/false);
}

TEST(SynchronizerUneven, RoundsAfterTheJoinAreAveragedByRankAgain) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    synchronizer.set_samples(communicator.rank() + 1);
    model.loss(1, 1).backward();
    synchronizer.wait();
    while (synchronizer.join()) {
    }
    synchronizer.zero_grad();
    model.loss(communicator.rank() + 1, 2).backward();
    EXPECT_TRUE(synchronizer.wait());
    const auto once = [](int) { return 1; };
    expect_all(model.left.grad(), mean_over_samples(communicator.world_size(), once, rank_plus_one), "left");
    expect_all(model.right.grad(), 2, "right");
  });
}

TEST(SynchronizerUneven, ParametersThatTheOthersDoNotUseStayUndefinedForThoseWhoJoin) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.unused = UnusedParameters::allowed}};
    const bool trains = communicator.rank() == 0;
    for (int batch = 0; trains && batch < 3; ++batch) {
      synchronizer.set_samples(4);
      (model.right.sum() * 3).backward();
      EXPECT_TRUE(synchronizer.wait());
      EXPECT_FALSE(model.left.grad().defined());
      synchronizer.zero_grad();
    }
    while (synchronizer.join()) {
      EXPECT_FALSE(model.left.grad().defined());
      expect_all(model.right.grad(), 3, "right");
      synchronizer.zero_grad();
    }
    EXPECT_EQ(synchronizer.rounds(), 3);
  });
}

}  // namespace
}  // namespace libtrain
