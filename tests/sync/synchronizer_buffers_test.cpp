// What wait() does to buffers, on ranks as threads and under mpirun.

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <libtrain/optim/moving_average.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

using test::device;
using test::expect_all;
using test::mean_over_ranks;
using test::on_device;
using test::on_ranks;
using test::Pair;

struct PairWithBuffers : Pair {
  at::Tensor mean = register_buffer("mean", torch::zeros({3}, device()));
  at::Tensor precise = register_buffer("precise", torch::zeros({2}, on_device(at::kDouble)));
  at::Tensor count = register_buffer("count", torch::zeros({1}, on_device(at::kLong)));
  at::Tensor mask = register_buffer("mask", torch::zeros({2}, on_device(at::kBool)));

  // What a forward pass would leave on this rank.
  void fill(int rank) {
    const torch::NoGradGuard no_grad;
    mean.fill_(rank + 1);
    precise.fill_(10 * rank);
    count.fill_(rank + 100);
    mask.fill_(rank % 2 == 1);
  }

  void expect(double of_mean, double of_precise, int whose) {
    expect_all(mean, of_mean, "mean");
    expect_all(precise, of_precise, "precise");
    EXPECT_EQ(count.item<std::int64_t>(), whose + 100);
    expect_all(mask, whose % 2 == 1 ? 1 : 0, "mask");
  }
};

TEST(SynchronizerBuffers, AreLeftAloneUnlessToldOtherwise) {
  on_ranks([](Communicator& communicator) {
    PairWithBuffers model;
    GradientSynchronizer synchronizer{model, communicator};
    const int rank = communicator.rank();
    model.fill(rank);
    model.loss(1, 1).backward();
    synchronizer.wait();
    model.expect(rank + 1, 10 * rank, rank);
    synchronizer.broadcast_buffers();
    model.expect(1, 0, 0);
  });
}

TEST(SynchronizerBuffers, AreExchangedInInferenceModeAndAfterIt) {
  on_ranks([](Communicator& communicator) {
    PairWithBuffers model;
    GradientSynchronizer synchronizer{model, communicator};
    for (const bool infers : {true, false}) {
      model.fill(communicator.rank());
      const c10::InferenceMode mode{infers};
      synchronizer.broadcast_buffers();
      model.expect(1, 0, 0);
    }
  });
}

TEST(SynchronizerBuffers, AreThoseOfTheFirstRank) {
  on_ranks([](Communicator& communicator) {
    PairWithBuffers model;
    GradientSynchronizer synchronizer{model, communicator, {.buffers = BufferPolicy::broadcast}};
    for (int round = 0; round < 2; ++round) {
      model.fill(communicator.rank());
      model.loss(1, 1).backward();
      synchronizer.wait();
      model.expect(1, 0, 0);
      synchronizer.zero_grad();
    }
  });
}

TEST(SynchronizerBuffers, AreThoseOfTheFirstRankThatHadSamples) {
  on_ranks([](Communicator& communicator) {
    const int source = communicator.world_size() == 1 ? 0 : 1;
    PairWithBuffers model;
    GradientSynchronizer synchronizer{model, communicator, {.buffers = BufferPolicy::broadcast}};
    model.fill(communicator.rank());
    synchronizer.set_samples(communicator.rank() < source ? 0 : 4);
    model.loss(1, 1).backward();
    synchronizer.wait();
    model.expect(source + 1, 10 * source, source);
  });
}

TEST(SynchronizerBuffers, AreAveragedWhereTheyAreFloating) {
  on_ranks([](Communicator& communicator) {
    PairWithBuffers model;
    GradientSynchronizer synchronizer{model, communicator, {.buffers = BufferPolicy::averaged}};
    const auto mean_rank = mean_over_ranks(communicator.world_size(), [](int rank) { return rank; });
    for (int round = 0; round < 2; ++round) {
      model.fill(communicator.rank());
      model.loss(1, 1).backward();
      synchronizer.wait();
      model.expect(mean_rank + 1, 10 * mean_rank, 0);
      synchronizer.zero_grad();
    }
  });
}

TEST(SynchronizerBuffers, AreAveragedBySamples) {
  on_ranks([](Communicator& communicator) {
    // Rank r has r samples, but for a group of one.
    const int world_size = communicator.world_size();
    const auto samples = [world_size](int rank) { return world_size == 1 ? 1 : rank; };
    double total = 0;
    double mean_rank = 0;
    for (int rank = 0; rank < world_size; ++rank) {
      total += samples(rank);
      mean_rank += rank * samples(rank);
    }
    mean_rank /= total;
    PairWithBuffers model;
    GradientSynchronizer synchronizer{model, communicator, {.buffers = BufferPolicy::averaged}};
    model.fill(communicator.rank());
    synchronizer.set_samples(samples(communicator.rank()));
    model.loss(1, 1).backward();
    synchronizer.wait();
    model.expect(mean_rank + 1, 10 * mean_rank, world_size == 1 ? 0 : 1);
  });
}

TEST(SynchronizerBuffers, ARoundWithoutSamplesKeepsThem) {
  on_ranks([](Communicator& communicator) {
    for (const auto policy : {BufferPolicy::broadcast, BufferPolicy::averaged}) {
      PairWithBuffers model;
      GradientSynchronizer synchronizer{model, communicator, {.buffers = policy}};
      model.fill(3);
      EXPECT_EQ(synchronizer.set_samples(0), 0);
      model.loss(1, 1).backward();
      EXPECT_TRUE(synchronizer.wait());
      model.expect(4, 30, 3);
    }
  });
}

TEST(SynchronizerBuffers, RunningStatisticsOfBatchNormAreAveraged) {
  on_ranks([](Communicator& communicator) {
    auto norm = on_device(torch::nn::BatchNorm1d{torch::nn::BatchNorm1dOptions(2).momentum(0.5)});
    GradientSynchronizer synchronizer{*norm, communicator, {.buffers = BufferPolicy::averaged}};
    // Rows r and r + 2: mean r + 1, unbiased variance 2.
    const double rank = communicator.rank();
    const auto batch = torch::tensor({{rank, rank}, {rank + 2, rank + 2}}, on_device(at::kFloat));
    norm(batch).pow(2).sum().backward();
    synchronizer.wait();
    const auto mean_of_batches = mean_over_ranks(communicator.world_size(), [](int of) { return of + 1; });
    expect_all(norm->running_mean, 0.5 * mean_of_batches, "running_mean");
    expect_all(norm->running_var, 0.5 * 1 + 0.5 * 2, "running_var");
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 1);
  });
}

TEST(SynchronizerBuffers, RanksThatJoinTakeThoseOfTheRanksThatTrain) {
  on_ranks([](Communicator& communicator) {
    const int last = communicator.world_size() - 1;
    for (const auto policy : {BufferPolicy::broadcast, BufferPolicy::averaged}) {
      PairWithBuffers model;
      GradientSynchronizer synchronizer{model, communicator, {.buffers = policy}};
      model.fill(communicator.rank());
      if (communicator.rank() == last) {
        synchronizer.set_samples(3);
        model.loss(1, 1).backward();
        synchronizer.wait();
      }
      while (synchronizer.join()) {
      }
      model.expect(last + 1, 10 * last, last);
    }
  });
}

// In the order in which moving_average.hpp has them.
TEST(SynchronizerBuffers, OfAMovingAverageAreRank0sWhereTheyAreBroadcastAfterTheSwap) {
  on_ranks([](Communicator& communicator) {
    PairWithBuffers model;
    GradientSynchronizer synchronizer{model, communicator};
    optim::MovingAverage average{model, {.decay = 0.5}};
    const int rank = communicator.rank();
    model.fill(rank);
    average.update(model);
    {
      const auto swapped = average.swap(model);
      expect_all(model.mean, 0.5 * (rank + 1), "this rank's average");
      synchronizer.broadcast_buffers();
      // From 0 half way to what rank 0 has filled in; integers and masks are the last ones.
      model.expect(0.5, 0, 0);
    }
    model.expect(rank + 1, 10 * rank, rank);
  });
}

}  // namespace
}  // namespace libtrain
