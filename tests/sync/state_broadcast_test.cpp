// Optimizers and objects that travel whole, on ranks as threads and under mpirun.

#include <libtrain/sync/state_broadcast.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>

#include <libtrain/base/error.hpp>
#include <libtrain/sync/broadcast.hpp>

#include <tests/support/device.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using test::device;
using test::message_of;
using test::on_device;
using test::on_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

std::vector<at::Tensor> make_parameters() {
  return {torch::ones({2, 3}, device()).requires_grad_(), torch::full({4}, 2.0, device()).requires_grad_()};
}

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<at::Tensor>)>;

template <typename Kind, typename Options>
MakeOptimizer maker(Options options) {
  return
      [options](std::vector<at::Tensor> parameters) { return std::make_unique<Kind>(std::move(parameters), options); };
}

// Descends the sum of squared distances to `target`.
void train(Optimizer& optimizer, const std::vector<at::Tensor>& parameters, double target, int steps) {
  for (int step = 0; step < steps; ++step) {
    optimizer.step([&] {
      optimizer.zero_grad();
      auto loss = torch::zeros({}, device());
      for (const auto& parameter : parameters) loss = loss + (parameter - target).pow(2).sum();
      loss.backward();
      return loss;
    });
  }
}

// What each rank has done before: something else.
void train_apart(Optimizer& optimizer, const std::vector<at::Tensor>& parameters, int rank) {
  train(optimizer, parameters, -1.0 - rank, 1 + rank);
}

void expect_to_go_on_as_root_does(const MakeOptimizer& make, Communicator& communicator, int root) {
  const auto parameters = make_parameters();
  const auto optimizer = make(parameters);
  train_apart(*optimizer, parameters, communicator.rank());
  broadcast_tensors(parameters, communicator, root);
  broadcast_optimizer_state(*optimizer, communicator, root);
  train(*optimizer, parameters, 5, 3);

  // The same in one process.
  const auto wanted = make_parameters();
  const auto alone = make(wanted);
  train_apart(*alone, wanted, root);
  train(*alone, wanted, 5, 3);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(torch::equal(parameters[i].cpu(), wanted[i].cpu())) << i;
}

TEST(BroadcastOptimizerState, LetsAllRanksGoOnAsTheRoot) {
  const std::vector<std::pair<std::string, MakeOptimizer>> makers = {
      {"SGD", maker<torch::optim::SGD>(torch::optim::SGDOptions(0.05).momentum(0.9).nesterov(true))},
      {"Adam", maker<torch::optim::Adam>(torch::optim::AdamOptions(0.05).amsgrad(true))},
      {"AdamW", maker<torch::optim::AdamW>(torch::optim::AdamWOptions(0.05).weight_decay(0.1))},
      {"Adagrad", maker<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.05).lr_decay(0.1))},
      {"RMSprop", maker<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01).momentum(0.9).centered(true))},
  };
  on_ranks([&](Communicator& communicator) {
    for (const auto& [name, make] : makers) {
      SCOPED_TRACE(name);
      expect_to_go_on_as_root_does(make, communicator, 0);
      expect_to_go_on_as_root_does(make, communicator, communicator.world_size() - 1);
    }
  });
}

TEST(BroadcastOptimizerState, BringsTheOptionsOfEachGroup) {
  on_ranks([](Communicator& communicator) {
    const auto parameters = make_parameters();
    torch::optim::SGD optimizer{{OptimizerParamGroup({parameters[0]}), OptimizerParamGroup({parameters[1]})},
                                torch::optim::SGDOptions(1)};
    const double own = 1 + communicator.rank();
    optimizer.param_groups()[0].options().set_lr(0.25 * own);
    optimizer.param_groups()[1].options().set_lr(0.5 * own);
    broadcast_optimizer_state(optimizer, communicator);
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
    EXPECT_EQ(optimizer.param_groups()[1].options().get_lr(), 0.5);
  });
}

TEST(BroadcastOptimizerState, ForgetsWhatTheRootDoesNotHave) {
  on_ranks([](Communicator& communicator) {
    const auto parameters = make_parameters();
    torch::optim::SGD optimizer{parameters, torch::optim::SGDOptions(0.1).momentum(0.9)};
    if (communicator.rank() != 0) train(optimizer, parameters, 5, 1);
    broadcast_optimizer_state(optimizer, communicator);
    EXPECT_TRUE(optimizer.state().empty());
  });
}

// The last rank's optimizer differs; every rank must say how.
void expect_difference(const std::function<std::unique_ptr<Optimizer>()>& make_common,
                       const std::function<std::unique_ptr<Optimizer>()>& make_different,
                       const std::vector<std::string>& parts) {
  on_ranks([&](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    const int odd_one = communicator.world_size() - 1;
    const auto optimizer = communicator.rank() == odd_one ? make_different() : make_common();
    try {
      broadcast_optimizer_state(*optimizer, communicator);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const UsageError& error) {
      for (const auto& part : parts) EXPECT_THAT(error.what(), HasSubstr(part));
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(odd_one)));
      EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
    }
  });
}

std::function<std::unique_ptr<Optimizer>()> sgd_over(std::vector<std::vector<std::int64_t>> shapes,
                                                     at::ScalarType type = at::kFloat, bool one_group = true) {
  return [=] {
    std::vector<OptimizerParamGroup> groups;
    for (const auto& shape : shapes) {
      const auto parameter = torch::ones(shape, on_device(type)).requires_grad_();
      if (one_group && !groups.empty()) {
        groups.front().params().push_back(parameter);
      } else {
        groups.emplace_back(std::vector<at::Tensor>{parameter});
      }
    }
    return std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.1));
  };
}

TEST(BroadcastOptimizerState, ComparesOptimizersFirst) {
  const auto common = sgd_over({{3, 4}, {5}});
  expect_difference(common, sgd_over({{3, 4}, {6}}), {"parameter 1 of group 0", "[5]", "[6]"});
  expect_difference(common, sgd_over({{3, 4}, {5}}, at::kDouble), {"Float", "Double"});
  expect_difference(common, sgd_over({{3, 4}}), {"[5]", "nothing"});
  expect_difference(common, sgd_over({{3, 4}, {5}}, at::kFloat, false), {"1 group", "2 groups"});
  const auto adam = [] {
    const std::vector<at::Tensor> parameters{torch::ones({3, 4}, device()), torch::ones({5}, device())};
    return std::make_unique<torch::optim::Adam>(parameters);
  };
  expect_difference(common, adam, {"SGD", "Adam"});
}

// Learns nothing and saves nothing.
class Idle : public Optimizer {
 public:
  explicit Idle(std::vector<at::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  at::Tensor step(LossClosure) override { return {}; }
};

TEST(BroadcastOptimizerState, RefusesOptimizersThatCannotBeSaved) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    Idle optimizer{make_parameters()};
    EXPECT_THAT(message_of<UsageError>([&] { broadcast_optimizer_state(optimizer, communicator); }),
                AllOf(HasSubstr("Idle"), HasSubstr("save()")));
  });
}

TEST(BroadcastObject, CopiesTensorsVectorsAndModulesFromAnyRoot) {
  on_ranks([](Communicator& communicator) {
    const int root = communicator.world_size() - 1;
    auto tensor = torch::full({2, 2}, communicator.rank(), device());
    broadcast_object(tensor, communicator, root, device());
    EXPECT_TRUE(torch::equal(tensor.cpu(), torch::full({2, 2}, root)));
    EXPECT_EQ(tensor.device(), device());

    std::vector<at::Tensor> tensors;
    for (int i = 0; i <= communicator.rank(); ++i)
      tensors.push_back(torch::full({i + 1}, 10 * communicator.rank(), device()));
    broadcast_object(tensors, communicator, root, device());
    ASSERT_EQ(tensors.size(), static_cast<std::size_t>(root + 1));
    EXPECT_TRUE(torch::equal(tensors.back().cpu(), torch::full({root + 1}, 10 * root)));

    auto module = on_device(torch::nn::Linear{3, 2});
    const torch::NoGradGuard no_grad;
    module->weight.fill_(communicator.rank() + 0.5);
    broadcast_object(module, communicator, root, device());
    EXPECT_TRUE(torch::equal(module->weight.cpu(), torch::full({2, 3}, root + 0.5)));
  });
}

TEST(BroadcastObject, ThrowsOnAllRanksWhatOneRankCannotLoad) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    const int odd_one = communicator.world_size() - 1;
    auto module = on_device(torch::nn::Linear{torch::nn::LinearOptions(3, 2).bias(communicator.rank() == odd_one)});
    try {
      broadcast_object(module, communicator);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank " + std::to_string(odd_one)), HasSubstr("bias")));
      EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
    }
  });
}

TEST(BroadcastObject, RefusesARootThatIsNoRank) {
  on_ranks([](Communicator& communicator) {
    auto tensor = torch::ones({2}, device());
    EXPECT_THAT(message_of<UsageError>([&] { broadcast_object(tensor, communicator, communicator.world_size()); }),
                HasSubstr("root"));
  });
}

}  // namespace
}  // namespace libtrain
