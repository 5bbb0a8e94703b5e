// Where the state of a sharded optimizer lies, and what a checkpoint has of it, on ranks as threads and under mpirun.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tests/support/device.hpp>
#include <tests/support/expect_told.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/sync/sharded_training.hpp>

namespace libtrain {
namespace {

using test::Alone;
using test::expect_equal_weights;
using test::expect_told;
using test::Network;
using test::on_device;
using test::on_ranks;
using test::Sharded;
using ::testing::ElementsAre;
using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;
using torch::optim::SGDOptions;
using StateDict = ShardedOptimizer::StateDict;

std::vector<ShardedRule> stateful_rules() {
  return {SGDOptions(0.1), SGDOptions(0.1).momentum(0.9), AdamWOptions(0.05)};
}

std::vector<std::string> names_of(const StateDict& state) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) names.push_back(name);
  return names;
}

std::map<std::string, at::Tensor> by_name(const StateDict& state) {
  return {state.begin(), state.end()};
}

// Two moments of 15 + 17 + 1 + 72 elements of 8 bytes, each parameter padded to 64 bytes.
TEST(ShardedOptimizerState, RanksTogetherHoldItOnce) {
  on_ranks([](Communicator& communicator) {
    Sharded ranks{communicator, AdamWOptions(0.05)};
    EXPECT_EQ(ranks.optimizer.state_bytes(), 0u);
    for (int step = 0; step < 2; ++step) ranks.take(step);
    const auto mine = static_cast<std::int64_t>(ranks.optimizer.state_bytes());
    const auto sum = at::full({1}, mine, on_device(at::kLong));
    communicator.all_reduce(sum).wait();
    // All ranks have the rest of each bucket.
    const std::int64_t others = communicator.world_size() - 1;
    const auto rests = static_cast<std::int64_t>(ranks.synchronizer.buckets().size()) * others;
    EXPECT_LE(mine, 2 * 8 * (120 / communicator.world_size() + rests));
    EXPECT_GE(sum.item<std::int64_t>(), 2 * 8 * 105);
    EXPECT_LE(sum.item<std::int64_t>(), 2 * 8 * (120 + rests * others));
  });
}

TEST(ShardedOptimizerState, IsOfTheParametersShapesOnRankZero) {
  on_ranks([](Communicator& communicator) {
    Sharded ranks{communicator, AdamWOptions(0.05)};
    Alone alone{AdamWOptions(0.05)};
    for (int step = 0; step < 3; ++step) {
      ranks.take(step);
      alone.take(step, ranks.mean_factor());
    }
    const auto state = ranks.optimizer.state_dict();
    if (communicator.rank() != 0) {
      EXPECT_TRUE(state.empty());
      return;
    }
    EXPECT_THAT(names_of(state),
                ElementsAre("a.exp_avg", "a.exp_avg_sq", "a.step", "b.exp_avg", "b.exp_avg_sq", "b.step", "c.exp_avg",
                            "c.exp_avg_sq", "c.step", "d.exp_avg", "d.exp_avg_sq", "d.step"));
    const auto found = by_name(state);
    for (const char letter : std::string{"abcd"}) {
      const std::string name{letter};
      const auto& states = alone.optimizer->state();
      const auto& wanted = static_cast<const AdamWParamState&>(*states.at(alone.network[letter].unsafeGetTensorImpl()));
      EXPECT_TRUE(torch::allclose(found.at(name + ".exp_avg").cpu(), wanted.exp_avg().cpu(), 1e-10, 1e-12)) << name;
      EXPECT_TRUE(torch::allclose(found.at(name + ".exp_avg_sq").cpu(), wanted.exp_avg_sq().cpu(), 1e-10, 1e-12))
          << name;
      EXPECT_EQ(found.at(name + ".step").item<std::int64_t>(), 3) << name;
    }
  });
}

// All ranks' gradients are alike, so that jobs of any size do the same.
std::vector<at::Tensor> train_sharded(Communicator& communicator, const ShardedRule& rule, const Network& from,
                                      StateDict& state, int begin, int end) {
  Sharded ranks{communicator, rule};
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t index = 0; index < from.weights.size(); ++index) {
      ranks.network.weights[index].copy_(from.weights[index]);
    }
  }
  if (begin > 0) ranks.optimizer.load_state_dict(state);
  for (int step = begin; step < end; ++step) {
    ranks.network.loss(step, 1).backward();
    ranks.synchronizer.wait();
    ranks.optimizer.step();
    ranks.synchronizer.zero_grad();
  }
  state = ranks.optimizer.state_dict();
  return ranks.network.weights;
}

// From all ranks to the first few of them, and from those to all.
TEST(ShardedOptimizerState, MovesBetweenJobsOfAnySizes) {
  for (const auto& rule : stateful_rules()) {
    on_ranks([&](Communicator& all) {
      Alone halfway{rule};
      Alone wanted{rule};
      for (int step = 0; step < 4; ++step) {
        wanted.take(step, 1);
        if (step < 2) halfway.take(step, 1);
      }
      const Network fresh;
      for (int size = 1; size <= all.world_size(); ++size) {
        const bool is_in = all.rank() < size;
        const auto part = all.split(is_in ? 0 : 1, all.rank());
        StateDict state;
        train_sharded(all, rule, fresh, state, 0, 2);
        if (is_in) {
          const auto weights = train_sharded(*part, rule, halfway.network, state, 2, 4);
          expect_equal_weights(weights, wanted.network.weights, "of a part");
          train_sharded(*part, rule, fresh, state, 0, 2);
        }
        const auto weights = train_sharded(all, rule, halfway.network, state, 2, 4);
        expect_equal_weights(weights, wanted.network.weights, "of all");
      }
    });
  }
}

// Between two steps nothing is lost: not in a job that goes on, either.
TEST(ShardedOptimizerState, MayBeSavedAndLoadedAtAnyTime) {
  on_ranks([](Communicator& communicator) {
    Sharded ranks{communicator, AdamWOptions(0.05)};
    Alone alone{AdamWOptions(0.05)};
    for (int step = 0; step < 4; ++step) {
      ranks.take(step);
      alone.take(step, ranks.mean_factor());
      ranks.optimizer.load_state_dict(ranks.optimizer.state_dict());
    }
    expect_equal_weights(ranks.network, alone.network);
  });
}

TEST(ShardedOptimizerState, OfAFrozenParameterIsKept) {
  on_ranks([](Communicator& communicator) {
    Sharded ranks{communicator, SGDOptions(0.1).momentum(0.9)};
    ranks.take(0);
    ranks.network['b'].set_requires_grad(false);
    for (int step = 1; step < 4; ++step) ranks.take(step);
    const auto state = by_name(ranks.optimizer.state_dict());
    if (communicator.rank() != 0) return;
    EXPECT_EQ(state.at("a.step").item<std::int64_t>(), 4);
    EXPECT_EQ(state.at("b.step").item<std::int64_t>(), 1);
    const auto first = Network::gradient_of(ranks.network['b'], 1, 0) * ranks.mean_factor();
    EXPECT_TRUE(torch::allclose(state.at("b.momentum_buffer").cpu(), first.cpu(), 1e-10, 1e-12));
  });
}

// `change` is made to the state that rank 0 gives back; all are told what is wrong with it, and nothing has changed.
void expect_refused(const std::function<void(StateDict&)>& change, const std::vector<std::string>& fragments) {
  on_ranks([&](Communicator& communicator) {
    Sharded ranks{communicator, AdamWOptions(0.05)};
    Alone alone{AdamWOptions(0.05)};
    for (int step = 0; step < 3; ++step) {
      ranks.take(step);
      alone.take(step, ranks.mean_factor());
      auto state = ranks.optimizer.state_dict();
      if (communicator.rank() == 0) change(state);
      expect_told(communicator, [&] { ranks.optimizer.load_state_dict(state); }, fragments);
    }
    expect_equal_weights(ranks.network, alone.network);
  });
}

TEST(ShardedOptimizerState, RefusesWhatDoesNotBelongToIt) {
  expect_refused([](StateDict& state) { state.emplace_back("e.step", at::full({}, 1, at::kLong)); }, {"'e.step'"});
  expect_refused([](StateDict& state) { state.push_back(state.front()); }, {"'a.exp_avg' twice"});
  expect_refused([](StateDict& state) { state.erase(state.begin()); }, {"no 'a.exp_avg'"});
  expect_refused([](StateDict& state) { state.front().second = torch::zeros({2}); }, {"'a.exp_avg'", "[2]", "[3, 5]"});
  expect_refused([](StateDict& state) { state.front().second.reset(); }, {"undefined", "'a.exp_avg'"});
  expect_refused([](StateDict& state) { state[2].second = torch::ones({1}); }, {"'a.step'", "step count"});
}

}  // namespace
}  // namespace libtrain
