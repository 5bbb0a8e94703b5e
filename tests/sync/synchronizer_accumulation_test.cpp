// Gradients from several backward() passes, on ranks as threads and under mpirun.

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/counting_format.hpp>
#include <tests/support/models.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

using test::CountingFormat;
using test::expect_all;
using test::make_batch;
using test::make_model;
using test::mean_rank_plus_one;
using test::on_ranks;
using test::Pair;

TEST(SynchronizerAccumulation, AddsMicroStepsAndAveragesOnce) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    const int mine = communicator.rank() + 1;
    for (int round = 0; round < 3; ++round) {
      {
        const auto guard = synchronizer.no_sync();
        for (int step = 1; step <= 2; ++step) model.loss(step * mine, 10 * round).backward();
      }
      model.loss(3 * mine, 5).backward();
      EXPECT_TRUE(synchronizer.wait());
      expect_all(model.left.grad(), 6 * mean_rank_plus_one(communicator), "left");
      expect_all(model.right.grad(), 20 * round + 5, "right");
      synchronizer.zero_grad();
    }
  });
}

constexpr std::int64_t kMicroSteps = 3;
constexpr std::int64_t kMicroBatch = 2;

TEST(SynchronizerAccumulation, MicroStepsEqualOneBigBatch) {
  on_ranks([](Communicator& communicator) {
    auto together = make_model("mlp", at::kDouble, 1);
    auto alone = make_model("mlp", at::kDouble, 1);
    GradientSynchronizer synchronizer{*together.module, communicator, {.buckets = {400, 100}}};
    const auto options = torch::optim::SGDOptions(0.05).momentum(0.9);
    torch::optim::SGD together_sgd{together.module->parameters(), options};
    torch::optim::SGD alone_sgd{alone.module->parameters(), options};
    for (std::uint64_t step = 0; step < 5; ++step) {
      const auto whole =
          make_batch(alone, kMicroSteps * kMicroBatch * communicator.world_size(), at::kDouble, 10 + step);
      alone_sgd.zero_grad();
      torch::mse_loss(alone.forward(whole.inputs), whole.targets).backward();
      alone_sgd.step();

      for (std::int64_t micro_step = 0; micro_step < kMicroSteps; ++micro_step) {
        const auto begin = (communicator.rank() * kMicroSteps + micro_step) * kMicroBatch;
        const auto outputs = together.forward(whole.inputs.narrow(0, begin, kMicroBatch));
        const auto loss = torch::mse_loss(outputs, whole.targets.narrow(0, begin, kMicroBatch)) / kMicroSteps;
        if (micro_step + 1 < kMicroSteps) {
          const auto guard = synchronizer.no_sync();
          loss.backward();
        } else {
          loss.backward();
        }
      }
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

TEST(SynchronizerAccumulation, RanksMayTakeDifferentNumbersOfMicroSteps) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    for (int round = 0; round < 2; ++round) {
      for (int step = 0; step < communicator.rank(); ++step) {
        const auto guard = synchronizer.no_sync();
        model.loss(1, 2).backward();
      }
      model.loss(1, 2).backward();
      synchronizer.wait();
      expect_all(model.left.grad(), mean_rank_plus_one(communicator), "left");
      expect_all(model.right.grad(), 2 * mean_rank_plus_one(communicator), "right");
      synchronizer.zero_grad();
    }
  });
}

TEST(SynchronizerAccumulation, SendsNothingWhileAnyGuardLives) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    const auto format = std::make_shared<CountingFormat>();
    GradientSynchronizer synchronizer{model, communicator, {.wire_format = format}};
    {
      auto outer = synchronizer.no_sync();
      {
        const auto inner = synchronizer.no_sync();
        model.loss(1, 2).backward();
      }
      model.loss(1, 2).backward();
      const auto moved = std::move(outer);
      model.loss(1, 2).backward();
    }
    EXPECT_EQ(format->started(), 0);
    model.loss(1, 2).backward();
    EXPECT_EQ(format->started(), static_cast<int>(synchronizer.buckets().size()));
    synchronizer.wait();
    expect_all(model.left.grad(), 4, "left");
    expect_all(model.right.grad(), 8, "right");
  });
}

TEST(SynchronizerAccumulation, AGradientOfAnyPassCounts) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    const int mine = communicator.rank() + 1;
    for (int round = 0; round < 2; ++round) {
      {
        const auto guard = synchronizer.no_sync();
        (model.left.sum() * mine).backward();
      }
      (model.right.sum() * 10 * mine).backward();
      EXPECT_TRUE(synchronizer.wait());
      expect_all(model.left.grad(), mean_rank_plus_one(communicator), "left");
      expect_all(model.right.grad(), 10 * mean_rank_plus_one(communicator), "right");
      synchronizer.zero_grad();
    }
  });
}

TEST(SynchronizerAccumulation, ZeroGradForgetsWhatCameUnderNoSync) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    torch::optim::SGD optimizer{model.parameters(), torch::optim::SGDOptions(0.1)};
    for (int round = 0; round < 3; ++round) {
      {
        const auto guard = synchronizer.no_sync();
        model.loss(100, 200).backward();
      }
      if (round == 0) synchronizer.zero_grad();
      if (round == 1) optimizer.zero_grad(true);
      if (round == 2) optimizer.zero_grad(false);
      model.loss(communicator.rank() + 1, 3).backward();
      EXPECT_TRUE(synchronizer.wait());
      expect_all(model.left.grad(), mean_rank_plus_one(communicator), "left");
      expect_all(model.right.grad(), 3, "right");
      synchronizer.zero_grad();
    }
  });
}

TEST(SynchronizerAccumulation, RoundsAddUpUntilGradientsAreZeroed) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}}};
    for (int round = 1; round <= 3; ++round) {
      model.loss(communicator.rank() + 1, 2).backward();
      EXPECT_TRUE(synchronizer.wait());
      expect_all(model.left.grad(), round * mean_rank_plus_one(communicator), "left");
      expect_all(model.right.grad(), 2 * round, "right");
    }
  });
}

TEST(SynchronizerAccumulation, WithoutOverlapAnyNumberOfPassesMayComeBeforeWait) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    const auto format = std::make_shared<CountingFormat>();
    GradientSynchronizer synchronizer{model, communicator, {.overlap = Overlap::none, .wire_format = format}};
    for (int round = 0; round < 2; ++round) {
      const int started = format->started();
      for (int pass = 1; pass <= 3; ++pass) model.loss(pass * (communicator.rank() + 1), 1).backward();
      EXPECT_EQ(format->started(), started);
      EXPECT_TRUE(synchronizer.wait());
      expect_all(model.left.grad(), 6 * mean_rank_plus_one(communicator), "left");
      expect_all(model.right.grad(), 3, "right");
      synchronizer.zero_grad();
    }
  });
}

}  // namespace
}  // namespace libtrain
