// Parameters that get no gradient on some or all ranks, on ranks as threads and under mpirun.

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/counting_format.hpp>
#include <tests/support/device.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>
#include <tests/support/training.hpp>

namespace libtrain {
namespace {

using test::CountingFormat;
using test::device;
using test::expect_all;
using test::mean_over_ranks;
using test::on_ranks;
using test::Pair;

// How the synchronizer learns what backward() will not reach.
enum class Telling { nothing, find_unused, declare_unused };
constexpr Telling kAllWays[] = {Telling::nothing, Telling::find_unused, Telling::declare_unused};

void tell(Telling how, GradientSynchronizer& synchronizer, const at::Tensor& loss,
          const std::vector<std::string>& unused) {
  if (how == Telling::find_unused) synchronizer.find_unused({loss});
  if (how == Telling::declare_unused) synchronizer.declare_unused(unused);
}

at::Tensor loss_of_right(const Pair& model, double gradient) {
  return model.right.sum() * gradient;
}

TEST(SynchronizerUnused, CountsAsZeroWhereOthersUseIt) {
  on_ranks([](Communicator& communicator) {
    const int mine = communicator.rank() + 1;
    const bool uses_left = communicator.rank() % 2 == 0;
    const std::vector<std::string> unused = uses_left ? std::vector<std::string>{} : std::vector<std::string>{"left"};
    const double wanted =
        mean_over_ranks(communicator.world_size(), [](int rank) { return rank % 2 == 0 ? rank + 1 : 0; });
    for (const auto how : kAllWays) {
      Pair model;
      GradientSynchronizer synchronizer{model, communicator, {.unused = UnusedParameters::allowed}};
      for (int round = 0; round < 3; ++round) {
        const auto loss = uses_left ? model.loss(mine, 10) : loss_of_right(model, 10);
        tell(how, synchronizer, loss, unused);
        loss.backward();
        EXPECT_TRUE(synchronizer.wait());
        expect_all(model.left.grad(), wanted, "left");
        expect_all(model.right.grad(), 10, "right");
        synchronizer.zero_grad();
      }
    }
  });
}

TEST(SynchronizerUnused, StaysUndefinedWhereNoRankUsesIt) {
  on_ranks([](Communicator& communicator) {
    for (const auto how : kAllWays) {
      for (const auto overlap : {Overlap::backward, Overlap::none}) {
        Pair model;
        GradientSynchronizer synchronizer{
            model, communicator, {.unused = UnusedParameters::allowed, .overlap = overlap}};
        for (int round = 0; round < 3; ++round) {
          const auto loss = loss_of_right(model, communicator.rank() + 1);
          tell(how, synchronizer, loss, {"left"});
          loss.backward();
          EXPECT_TRUE(synchronizer.wait());
          EXPECT_FALSE(model.left.grad().defined());
          expect_all(model.right.grad(), mean_over_ranks(communicator.world_size(), [](int rank) { return rank + 1; }));
          synchronizer.zero_grad();
        }
      }
    }
  });
}

TEST(SynchronizerUnused, OldGradientsDoNotComeBack) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.unused = UnusedParameters::allowed}};
    model.loss(1000, 1000).backward();
    synchronizer.wait();
    synchronizer.zero_grad();

    const bool uses_left = communicator.rank() == 0;
    (uses_left ? model.loss(8, 1) : loss_of_right(model, 1)).backward();
    synchronizer.wait();
    expect_all(model.left.grad(), 8.0 / communicator.world_size(), "left");
    synchronizer.zero_grad();

    loss_of_right(model, 2).backward();
    synchronizer.wait();
    EXPECT_FALSE(model.left.grad().defined());
    expect_all(model.right.grad(), 2, "right");
  });
}

TEST(SynchronizerUnused, RanksMayUseHeadsOfTheirOwn) {
  on_ranks([](Communicator& communicator) {
    constexpr int kHeads = 3;
    torch::nn::Module model{"heads"};
    std::vector<at::Tensor> heads;
    for (int head = 0; head < kHeads; ++head) {
      heads.push_back(model.register_parameter("head" + std::to_string(head), torch::ones({5}, device())));
    }
    GradientSynchronizer synchronizer{model, communicator, {.buckets = {20, 20}, .unused = UnusedParameters::allowed}};
    for (int round = 0; round < 4; ++round) {
      const auto head_of = [round](int rank) { return (rank + round) % kHeads; };
      const auto& mine = heads[static_cast<std::size_t>(head_of(communicator.rank()))];
      (mine.sum() * (communicator.rank() + 1)).backward();
      EXPECT_TRUE(synchronizer.wait());
      for (int head = 0; head < kHeads; ++head) {
        const double wanted =
            mean_over_ranks(communicator.world_size(), [&](int rank) { return head_of(rank) == head ? rank + 1 : 0; });
        const auto& gradient = heads[static_cast<std::size_t>(head)].grad();
        if (wanted > 0) {
          expect_all(gradient, wanted, "head " + std::to_string(head));
        } else {
          EXPECT_FALSE(gradient.defined()) << "head " << head;
        }
      }
      synchronizer.zero_grad();
    }
  });
}

// Buckets of one parameter each: `right` first, then `left`.
int started_during_backward(Communicator& communicator, Telling how, const std::string& unused) {
  Pair model;
  const auto format = std::make_shared<CountingFormat>();
  GradientSynchronizer synchronizer{
      model, communicator, {.buckets = {16, 16}, .unused = UnusedParameters::allowed, .wire_format = format}};
  EXPECT_EQ(synchronizer.buckets().size(), 2u);
  const auto loss = unused == "left" ? loss_of_right(model, 1) : model.left.sum();
  tell(how, synchronizer, loss, {unused});
  loss.backward();
  const int started = format->started();
  synchronizer.wait();
  EXPECT_EQ(format->started(), 2);
  return started;
}

TEST(SynchronizerUnused, BucketsDoNotWaitForWhatIsKnownToBeUnused) {
  on_ranks([](Communicator& communicator) {
    EXPECT_EQ(started_during_backward(communicator, Telling::nothing, "left"), 1);
    EXPECT_EQ(started_during_backward(communicator, Telling::nothing, "right"), 0);
    for (const auto how : {Telling::find_unused, Telling::declare_unused}) {
      EXPECT_EQ(started_during_backward(communicator, how, "left"), 2);
      EXPECT_EQ(started_during_backward(communicator, how, "right"), 2);
    }
  });
}

TEST(SynchronizerUnused, ADeclarationHoldsUntilTheNext) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.unused = UnusedParameters::allowed}};
    synchronizer.declare_unused({"left"});
    for (int round = 0; round < 2; ++round) {
      loss_of_right(model, 1).backward();
      EXPECT_TRUE(synchronizer.wait());
      EXPECT_FALSE(model.left.grad().defined());
      synchronizer.zero_grad();
    }
    synchronizer.declare_unused({});
    for (int round = 0; round < 2; ++round) {
      model.loss(communicator.rank() + 1, 1).backward();
      EXPECT_TRUE(synchronizer.wait());
      expect_all(model.left.grad(), mean_over_ranks(communicator.world_size(), [](int rank) { return rank + 1; }));
      synchronizer.zero_grad();
    }
  });
}

TEST(SynchronizerUnused, WhatIsFoundHoldsForOneRound) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.unused = UnusedParameters::allowed}};
    for (int round = 0; round < 4; ++round) {
      const bool uses_left = round % 2 == 1;
      const auto loss = uses_left ? model.loss(3, 1) : loss_of_right(model, 1);
      if (!uses_left) synchronizer.find_unused({loss});
      loss.backward();
      EXPECT_TRUE(synchronizer.wait());
      if (uses_left) {
        expect_all(model.left.grad(), 3, "left");
      } else {
        EXPECT_FALSE(model.left.grad().defined());
      }
      synchronizer.zero_grad();
    }
  });
}

TEST(SynchronizerUnused, ARankMayUseNothingAtAll) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.unused = UnusedParameters::allowed}};
    for (int round = 0; round < 3; ++round) {
      const int only = round % communicator.world_size();
      if (communicator.rank() == only) model.loss(6, 12).backward();
      EXPECT_TRUE(synchronizer.wait());
      expect_all(model.left.grad(), 6.0 / communicator.world_size(), "left");
      expect_all(model.right.grad(), 12.0 / communicator.world_size(), "right");
      synchronizer.zero_grad();
    }
  });
}

TEST(SynchronizerUnused, AGradientOfAnEarlierPassIsUse) {
  on_ranks([](Communicator& communicator) {
    for (const auto how : {Telling::nothing, Telling::find_unused}) {
      Pair model;
      GradientSynchronizer synchronizer{model, communicator, {.unused = UnusedParameters::allowed}};
      for (int round = 0; round < 2; ++round) {
        if (communicator.rank() == 0) {
          const auto guard = synchronizer.no_sync();
          (model.left.sum() * 6).backward();
        }
        const auto loss = loss_of_right(model, 1);
        tell(how, synchronizer, loss, {});
        loss.backward();
        EXPECT_TRUE(synchronizer.wait());
        expect_all(model.left.grad(), 6.0 / communicator.world_size(), "left");
        expect_all(model.right.grad(), 1, "right");
        synchronizer.zero_grad();
      }
    }
  });
}

TEST(SynchronizerUnused, AGradientThatAnOptimizerHasForgottenIsNone) {
  on_ranks([](Communicator& communicator) {
    for (const auto non_finite : {NonFinite::unchecked, NonFinite::skipped}) {
      Pair model;
      GradientSynchronizer synchronizer{
          model, communicator, {.unused = UnusedParameters::allowed, .non_finite = non_finite}};
      {
        const auto guard = synchronizer.no_sync();
        model.loss(100, 100).backward();
      }
      for (auto& parameter : model.parameters()) parameter.mutable_grad().reset();  // as Optimizer::zero_grad() does
      loss_of_right(model, communicator.rank() + 1).backward();
      EXPECT_TRUE(synchronizer.wait());
      EXPECT_FALSE(model.left.grad().defined());
      expect_all(model.right.grad(), mean_over_ranks(communicator.world_size(), [](int rank) { return rank + 1; }));
    }
  });
}

// A rank that leaves a part out has its buckets full sooner, before other collectives of the batch norms. Whether the
// training ends is tested; the tests of parity compare its weights.
TEST(SynchronizerUnused, BucketsAndBatchNormsDoNotWaitForEachOther) {
  on_ranks([](Communicator& communicator) {
    const auto trained = test::train_together({.model = "batch_norm", .regime = test::Regime::unused}, communicator);
    EXPECT_TRUE(trained.weights.isfinite().all().item<bool>());
  });
}

}  // namespace
}  // namespace libtrain
