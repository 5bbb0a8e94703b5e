// Which gradients travel together, and when that changes, on ranks as threads and under mpirun.

#include <algorithm>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <libtrain/base/text.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

using test::device;
using test::expect_all;
using test::mean_rank_plus_one;
using test::on_ranks;
using ::testing::ElementsAre;

// Room for one of the parameters below.
constexpr BucketLimits kOneEach{.bucket_bytes = 16, .first_bucket_bytes = 16};

// Parameters a, b, c and d, float32 [4], whose gradients are 1, 2, 3 and 4 times what a test asks for.
struct Letters : torch::nn::Module {
  Letters() {
    for (const char* name : {"a", "b", "c", "d"})
      parameters_by_name.push_back(register_parameter(name, torch::ones({4}, device())));
  }

  at::Tensor& operator[](char letter) { return parameters_by_name[static_cast<std::size_t>(letter - 'a')]; }

  // backward() reaches the parameters in this order: autograd runs later operations first.
  at::Tensor loss(const std::string& order, double gradient) {
    auto sum = torch::zeros({1}, device());
    for (auto letter = order.rbegin(); letter != order.rend(); ++letter) {
      sum = sum + (*this)[*letter].sum() * (gradient * factor_of(*letter));
    }
    return sum;
  }

  static double factor_of(char letter) { return letter - 'a' + 1; }

  // Those that are trained have `gradient` times their factor, the others none.
  void expect_gradients(double gradient) {
    for (const char letter : std::string{"abcd"}) {
      if ((*this)[letter].requires_grad()) {
        expect_all((*this)[letter].grad(), gradient * factor_of(letter), std::string{letter});
      } else {
        EXPECT_FALSE((*this)[letter].grad().defined()) << letter;
      }
    }
  }

  std::vector<at::Tensor> parameters_by_name;
};

// "d cb a": a word a bucket.
std::string plan_of(const GradientSynchronizer& synchronizer) {
  const auto names = synchronizer.parameter_names();
  std::vector<std::string> words;
  for (const auto& bucket : synchronizer.buckets()) {
    std::string word;
    for (const auto member : bucket.members) word += names[member];
    words.push_back(word);
  }
  return join(words, " ");
}

// Those that have a place in a bucket.
std::string trained_letters(const GradientSynchronizer& synchronizer) {
  auto letters = plan_of(synchronizer);
  std::erase(letters, ' ');
  std::sort(letters.begin(), letters.end());
  return letters;
}

std::string order_of(const Communicator& communicator) {
  return communicator.rank() == 0 ? "bdac" : "cabd";
}

TEST(SynchronizerPlan, FollowsTheOrderInWhichRankZeroSawGradients) {
  on_ranks([](Communicator& communicator) {
    Letters model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = {32, 16}}};
    EXPECT_EQ(plan_of(synchronizer), "d cb a");
    for (int round = 0; round < 3; ++round) {
      model.loss(order_of(communicator), communicator.rank() + 1).backward();
      EXPECT_TRUE(synchronizer.wait());
      model.expect_gradients(mean_rank_plus_one(communicator));
      synchronizer.zero_grad();
    }
    if (communicator.world_size() > 1) {
      EXPECT_EQ(plan_of(synchronizer), "b da c");
    }
  });
}

TEST(SynchronizerPlan, StaysWhereReplanningIsOff) {
  on_ranks([](Communicator& communicator) {
    Letters model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = kOneEach, .replan = false}};
    for (int round = 0; round < 3; ++round) {
      model.loss(order_of(communicator), communicator.rank() + 1).backward();
      EXPECT_TRUE(synchronizer.wait());
      model.expect_gradients(mean_rank_plus_one(communicator));
      EXPECT_EQ(plan_of(synchronizer), "d c b a");
      synchronizer.zero_grad();
    }
  });
}

TEST(SynchronizerPlan, DoesNotChangeWhileGradientsAccumulate) {
  on_ranks([](Communicator& communicator) {
    Letters model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = kOneEach}};
    const double mine = communicator.rank() + 1;
    for (int round = 0; round < 3; ++round) {
      std::set<std::string> plans;
      for (int step = 0; step < 2; ++step) {
        const auto guard = synchronizer.no_sync();
        model.loss(order_of(communicator), mine).backward();
        plans.insert(plan_of(synchronizer));
      }
      model.loss(order_of(communicator), mine).backward();
      plans.insert(plan_of(synchronizer));
      EXPECT_EQ(plans.size(), 1u) << join(plans, " | ");
      EXPECT_TRUE(synchronizer.wait());
      model.expect_gradients(3 * mean_rank_plus_one(communicator));
      synchronizer.zero_grad();
    }
    if (communicator.world_size() > 1) {
      EXPECT_EQ(plan_of(synchronizer), "b d a c");
    }
  });
}

TEST(SynchronizerPlan, GradientsSurviveReplanning) {
  on_ranks([](Communicator& communicator) {
    Letters model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = kOneEach}};
    const double mine = communicator.rank() + 1;
    for (int round = 1; round <= 4; ++round) {
      const auto loss = model.loss(order_of(communicator), mine);
      if (round > 1) model.expect_gradients((round - 1) * mean_rank_plus_one(communicator));
      loss.backward();
      EXPECT_TRUE(synchronizer.wait());
      model.expect_gradients(round * mean_rank_plus_one(communicator));
    }
  });
}

TEST(SynchronizerPlan, TakesTheOneThatIsGiven) {
  on_ranks([](Communicator& communicator) {
    Letters model;
    const std::vector<std::vector<std::string>> plan{{"b"}, {"d", "a"}, {"c"}};
    GradientSynchronizer synchronizer{model, communicator, {.plan = plan}};
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(plan_of(synchronizer), "b da c");
      model.loss("cabd", communicator.rank() + 1).backward();
      EXPECT_TRUE(synchronizer.wait());
      model.expect_gradients(mean_rank_plus_one(communicator));
      synchronizer.zero_grad();
    }
    EXPECT_EQ(plan_of(synchronizer), "b da c");
  });
}

// Two rounds with the parameters that now require a gradient.
void expect_right_rounds(Letters& model, GradientSynchronizer& synchronizer, const Communicator& communicator) {
  for (int round = 0; round < 2; ++round) {
    model.loss("dcba", communicator.rank() + 1).backward();
    EXPECT_TRUE(synchronizer.wait());
    model.expect_gradients(mean_rank_plus_one(communicator));
    synchronizer.zero_grad();
  }
}

TEST(SynchronizerPlan, LayersMayBeFrozenAndUnfrozen) {
  on_ranks([](Communicator& communicator) {
    for (const auto overlap : {Overlap::backward, Overlap::none}) {
      for (const auto limits : {kOneEach, BucketLimits{}}) {
        Letters model;
        GradientSynchronizer synchronizer{model, communicator, {.buckets = limits, .overlap = overlap}};
        expect_right_rounds(model, synchronizer, communicator);
        model['b'].set_requires_grad(false);
        expect_right_rounds(model, synchronizer, communicator);
        EXPECT_EQ(trained_letters(synchronizer), "acd");
        model['a'].set_requires_grad(false);
        model['b'].set_requires_grad(true);
        expect_right_rounds(model, synchronizer, communicator);
        EXPECT_EQ(trained_letters(synchronizer), "bcd");
        model['a'].set_requires_grad(true);
        expect_right_rounds(model, synchronizer, communicator);
        EXPECT_EQ(trained_letters(synchronizer), "abcd");
        EXPECT_THAT(synchronizer.parameter_names(), ElementsAre("d", "c", "b", "a"));
      }
    }
  });
}

TEST(SynchronizerPlan, LayersThatStartFrozenMayBeUnfrozen) {
  on_ranks([](Communicator& communicator) {
    Letters model;
    for (const char letter : {'a', 'd'}) model[letter].set_requires_grad(false);
    GradientSynchronizer synchronizer{model, communicator, {.buckets = kOneEach}};
    expect_right_rounds(model, synchronizer, communicator);
    for (const char letter : {'a', 'd'}) model[letter].set_requires_grad(true);
    expect_right_rounds(model, synchronizer, communicator);
    EXPECT_EQ(synchronizer.buckets().size(), 4u);
  });
}

TEST(SynchronizerPlan, UnfreezingWorksInAnAccumulatedRound) {
  on_ranks([](Communicator& communicator) {
    Letters model;
    model['c'].set_requires_grad(false);
    GradientSynchronizer synchronizer{model, communicator, {.buckets = kOneEach}};
    const double mine = communicator.rank() + 1;
    for (int round = 0; round < 4; ++round) {
      if (round == 2) model['c'].set_requires_grad(true);
      {
        const auto guard = synchronizer.no_sync();
        model.loss("dcba", mine).backward();
      }
      model.loss("dcba", 2 * mine).backward();
      EXPECT_TRUE(synchronizer.wait());
      model.expect_gradients(3 * mean_rank_plus_one(communicator));
      synchronizer.zero_grad();
    }
  });
}

// A device has no tune().
TEST(HostOnlySynchronizerPlan, TuningGivesAllRanksTheSamePlan) {
  on_ranks([](Communicator& communicator) {
    Letters model;
    GradientSynchronizer synchronizer{model, communicator};
    expect_right_rounds(model, synchronizer, communicator);
    const auto limits = synchronizer.tune();
    EXPECT_GT(limits.bucket_bytes, 0u);
    EXPECT_GT(limits.first_bucket_bytes, 0u);
    expect_right_rounds(model, synchronizer, communicator);
    const auto mine = text(limits.bucket_bytes, " ", limits.first_bucket_bytes, " ", plan_of(synchronizer));
    for (const auto& other : communicator.all_gather_bytes(mine)) EXPECT_EQ(other, mine);
  });
}

}  // namespace
}  // namespace libtrain
