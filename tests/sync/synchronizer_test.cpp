// The contract of GradientSynchronizer beside parity, on ranks as threads and under mpirun.

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/wire/detail/plain.hpp>

#include <tests/support/counting_format.hpp>
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

struct TwoBranchesImpl : torch::nn::Module {
  torch::nn::Linear left{4, 4};
  torch::nn::Linear right{4, 4};
  torch::nn::BatchNorm1d norm{4};
  TwoBranchesImpl() {
    register_module("left", left);
    register_module("right", right);
    register_module("norm", norm);
    to(device());
  }
};
TORCH_MODULE(TwoBranches);

at::Tensor both(TwoBranches& model) {
  const auto x = torch::ones({2, 4}, device());
  return model->norm(model->left(x) + model->right(x)).pow(2).sum() + model->left(x).sum() + model->right(x).sum();
}

TEST(Synchronizer, StartsFromTheWeightsAndBuffersOfRankZero) {
  on_ranks([](Communicator& communicator) {
    TwoBranches model;
    {
      const torch::NoGradGuard no_grad;
      for (auto& tensor : model->parameters()) tensor.fill_(communicator.rank() + 1);
      for (auto& tensor : model->buffers()) tensor.fill_(communicator.rank() + 5);
    }
    const GradientSynchronizer synchronizer{*model, communicator};
    for (const auto& tensor : model->parameters()) EXPECT_TRUE(tensor.eq(1).all().item<bool>());
    for (const auto& tensor : model->buffers()) EXPECT_TRUE(tensor.eq(5).all().item<bool>());
  });
}

TEST(Synchronizer, BroadcastsBuffersOfTypesThatCannotBeReduced) {
  on_ranks([](Communicator& communicator) {
    torch::nn::Module model{"model"};
    model.register_parameter("weight", torch::ones({2}, device()));
    const bool here = communicator.rank() == 0;
    model.register_buffer("mask", torch::full({3}, here, on_device(at::kBool)));
    model.register_buffer("phase",
                          torch::full({3}, c10::complex<double>(0, here ? 2 : 3), on_device(at::kComplexDouble)));
    model.register_buffer("small", torch::full({3}, here ? -5 : 7, on_device(at::kChar)));
    const GradientSynchronizer synchronizer{model, communicator};
    for (const auto& buffer : model.named_buffers()) {
      const auto wanted = buffer.key() == "mask"    ? torch::full({3}, true, at::kBool)
                          : buffer.key() == "phase" ? torch::full({3}, c10::complex<double>(0, 2), at::kComplexDouble)
                                                    : torch::full({3}, -5, at::kChar);
      EXPECT_TRUE(torch::equal(buffer.value().cpu(), wanted)) << buffer.key();
    }
  });
}

TEST(Synchronizer, PlansTheSameBucketsOnAllRanks) {
  on_ranks([](Communicator& communicator) {
    TwoBranches model;
    const GradientSynchronizer synchronizer{*model, communicator, {.buckets = {40, 16}}};
    std::string plan;
    for (const auto& bucket : synchronizer.buckets()) {
      plan += std::to_string(bucket.bytes) + ":";
      for (const auto member : bucket.members) plan += std::to_string(member) + ",";
    }
    EXPECT_GT(synchronizer.buckets().size(), 1u);
    for (const auto& other : communicator.all_gather_bytes(plan)) EXPECT_EQ(other, plan);
  });
}

TEST(Synchronizer, BroadcastsBuffersOnRequest) {
  on_ranks([](Communicator& communicator) {
    TwoBranches model;
    GradientSynchronizer synchronizer{*model, communicator};
    {
      const torch::NoGradGuard no_grad;
      model->norm->running_mean.fill_(communicator.rank() + 3);
    }
    synchronizer.broadcast_buffers();
    EXPECT_TRUE(model->norm->running_mean.eq(3).all().item<bool>());
  });
}

TEST(Synchronizer, KeepsGradientsInFlatBuckets) {
  detail::SingleCommunicator communicator{device()};
  auto model = on_device(torch::nn::Sequential{torch::nn::Linear(4, 4), torch::nn::Linear(4, 4)});
  GradientSynchronizer synchronizer{*model, communicator, {.wire_format = std::make_shared<detail::PlainWireFormat>()}};
  ASSERT_EQ(synchronizer.buckets().size(), 1u);
  for (int round = 0; round < 2; ++round) {
    model->forward(torch::ones({1, 4}, device())).sum().backward();
    synchronizer.wait();
    std::set<void*> memories;
    for (const auto& parameter : model->parameters()) memories.insert(parameter.grad().storage().mutable_data());
    EXPECT_EQ(memories.size(), 1u);
    synchronizer.zero_grad();
    for (const auto& parameter : model->parameters()) EXPECT_FALSE(parameter.grad().defined());
  }
}

TEST(Synchronizer, KeepsTheLayoutOfChannelsLastGradients) {
  detail::SingleCommunicator communicator{device()};
  auto model = on_device(torch::nn::Conv2d{torch::nn::Conv2dOptions(3, 4, 3)});
  {
    const torch::NoGradGuard no_grad;
    model->weight.set_data(model->weight.contiguous(at::MemoryFormat::ChannelsLast));
  }
  GradientSynchronizer synchronizer{*model, communicator};
  model->forward(torch::ones({1, 3, 5, 5}, device())).sum().backward();
  synchronizer.wait();
  EXPECT_TRUE(model->weight.grad().is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(Synchronizer, ReducesDuringBackwardFromTheFirstRoundOn) {
  detail::SingleCommunicator communicator{device()};
  const auto format = std::make_shared<test::CountingFormat>();
  auto model =
      on_device(torch::nn::Sequential{torch::nn::Linear(8, 8), torch::nn::Linear(8, 8), torch::nn::Linear(8, 8)});
  GradientSynchronizer synchronizer{*model, communicator, {.buckets = {300, 300}, .wire_format = format}};
  const auto buckets = static_cast<int>(synchronizer.buckets().size());
  ASSERT_GE(buckets, 3);
  for (int round = 1; round <= 2; ++round) {
    model->forward(torch::ones({1, 8}, device())).sum().backward();
    EXPECT_EQ(format->started(), round * buckets);
    synchronizer.wait();
    EXPECT_EQ(format->started(), round * buckets);
  }
}

TEST(Synchronizer, RanksMayProduceGradientsInAnyOrder) {
  on_ranks([](Communicator& communicator) {
    TwoBranches model;
    {
      const torch::NoGradGuard no_grad;
      for (auto& tensor : model->parameters()) tensor.fill_(1);
    }
    GradientSynchronizer synchronizer{*model, communicator, {.buckets = {16, 16}}};
    const auto x = torch::full({1, 4}, communicator.rank() + 1.0, device());
    const auto left = [&] { return model->left(x).sum(); };
    const auto right = [&] { return model->right(x).sum() * 2; };
    const auto rest = model->norm(torch::ones({2, 4}, device())).sum();
    // Autograd runs later operations first.
    auto loss = rest;
    if (communicator.rank() % 2 == 0) {
      loss = loss + left();
      loss = loss + right();
    } else {
      loss = loss + right();
      loss = loss + left();
    }
    loss.backward();
    synchronizer.wait();
    const double mean = (communicator.world_size() + 1) / 2.0;
    EXPECT_NEAR(model->left->weight.grad()[0][0].item<double>(), mean, 1e-6);
    EXPECT_NEAR(model->right->weight.grad()[0][0].item<double>(), 2 * mean, 1e-6);
  });
}

TEST(Synchronizer, LeavesFrozenParametersAlone) {
  on_ranks([](Communicator& communicator) {
    TwoBranches model;
    model->left->weight.set_requires_grad(false);
    GradientSynchronizer synchronizer{*model, communicator};
    both(model).backward();
    synchronizer.wait();
    EXPECT_FALSE(model->left->weight.grad().defined());
    EXPECT_TRUE(model->left->bias.grad().defined());
  });
}

TEST(Synchronizer, NamesParametersThatGotNoGradient) {
  on_ranks([](Communicator& communicator) {
    TwoBranches model;
    GradientSynchronizer synchronizer{*model, communicator};
    (model->left(torch::ones({1, 4}, device())).sum() + model->norm(torch::ones({2, 4}, device())).sum()).backward();
    EXPECT_THAT(message_of<UsageError>([&] { synchronizer.wait(); }),
                AllOf(HasSubstr("2 of 6"), HasSubstr("'right.weight'"), HasSubstr("'right.bias'")));
  });
}

TEST(Synchronizer, RefusesASecondBackwardBeforeWait) {
  detail::SingleCommunicator communicator{device()};
  auto model = on_device(torch::nn::Linear{4, 4});
  GradientSynchronizer synchronizer{*model, communicator};
  model->forward(torch::ones({1, 4}, device())).sum().backward();
  EXPECT_THAT(message_of<UsageError>([&] { model->forward(torch::ones({1, 4}, device())).sum().backward(); }),
              AllOf(HasSubstr("second gradient"), HasSubstr("wait()")));
}

TEST(Synchronizer, RefusesCallsOutOfOrder) {
  detail::SingleCommunicator communicator{device()};
  auto model = on_device(torch::nn::Linear{4, 4});
  GradientSynchronizer synchronizer{*model, communicator};
  EXPECT_THAT(message_of<UsageError>([&] { synchronizer.wait(); }), HasSubstr("without a backward()"));
  model->forward(torch::ones({1, 4}, device())).sum().backward();
  EXPECT_THAT(message_of<UsageError>([&] { synchronizer.zero_grad(); }), HasSubstr("between backward() and wait()"));
}

TEST(Synchronizer, RefusesModulesWithoutParameters) {
  detail::SingleCommunicator communicator{device()};
  torch::nn::ReLU nothing_to_train;
  EXPECT_THAT(message_of<UsageError>([&] { GradientSynchronizer{*nothing_to_train, communicator}; }),
              HasSubstr("no parameter"));
}

// Tests have a device without sparse tensors.
TEST(HostOnlySynchronizer, RefusesSparseGradients) {
  detail::SingleCommunicator communicator{device()};
  torch::nn::Embedding sparse{torch::nn::EmbeddingOptions(10, 3).sparse(true)};
  GradientSynchronizer synchronizer{*sparse, communicator};
  const auto loss = sparse->forward(torch::tensor({1, 2})).sum();
  EXPECT_THAT(message_of<UsageError>([&] { loss.backward(); }), AllOf(HasSubstr("'weight'"), HasSubstr("sparse")));
}

TEST(Synchronizer, RefusesDoubleBackward) {
  detail::SingleCommunicator communicator{device()};
  auto model = on_device(torch::nn::Linear{4, 4});
  GradientSynchronizer synchronizer{*model, communicator};
  const auto loss = model->forward(torch::ones({1, 4}, device())).pow(2).sum();
  EXPECT_THAT(message_of<UsageError>([&] { loss.backward({}, true, true); }), HasSubstr("create_graph"));
}

TEST(Synchronizer, TakesItsHooksAlong) {
  detail::SingleCommunicator communicator{device()};
  auto model = on_device(torch::nn::Linear{4, 4});
  const auto accumulator = torch::autograd::impl::grad_accumulator(model->weight);
  {
    const GradientSynchronizer synchronizer{*model, communicator};
    EXPECT_EQ(accumulator->post_hooks().size(), 1u);
  }
  EXPECT_TRUE(accumulator->post_hooks().empty());
  for (int round = 0; round < 2; ++round) model->forward(torch::ones({1, 4}, device())).sum().backward();
  EXPECT_EQ(model->bias.grad()[0].item<float>(), 2.0f);
}

// One rank's module differs; every rank must say how.
void expect_difference(const std::function<void(torch::nn::Module&)>& make_common,
                       const std::function<void(torch::nn::Module&)>& make_different,
                       const std::vector<std::string>& parts) {
  on_ranks([&](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    const int odd_one = communicator.world_size() - 1;
    torch::nn::Module model{"model"};
    (communicator.rank() == odd_one ? make_different : make_common)(model);
    try {
      const GradientSynchronizer synchronizer{model, communicator};
      ADD_FAILURE() << "nothing was thrown";
    } catch (const UsageError& error) {
      for (const auto& part : parts) EXPECT_THAT(error.what(), HasSubstr(part));
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(odd_one)));
      EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
    }
  });
}

std::function<void(torch::nn::Module&)> with_weight(const char* name, std::vector<std::int64_t> shape,
                                                    at::ScalarType type = at::kFloat, bool trainable = true) {
  return [=](torch::nn::Module& model) {
    model.register_parameter("bias", torch::ones({2}, device()));
    model.register_parameter(name, torch::ones(shape, on_device(type)), trainable);
  };
}

TEST(ModelAgreement, ComparesShapes) {
  expect_difference(with_weight("weight", {3, 4}), with_weight("weight", {4, 3}), {"'weight'", "[3, 4]", "[4, 3]"});
}

TEST(ModelAgreement, ComparesNames) {
  expect_difference(with_weight("weight", {3}), with_weight("kernel", {3}), {"'weight'", "'kernel'", "[3]"});
}

TEST(ModelAgreement, ComparesTypes) {
  expect_difference(with_weight("weight", {3}), with_weight("weight", {3}, at::kDouble),
                    {"'weight'", "Float", "Double"});
}

TEST(ModelAgreement, ComparesWhatIsTrained) {
  expect_difference(with_weight("weight", {3}), with_weight("weight", {3}, at::kFloat, false), {"'weight'", "frozen"});
}

TEST(ModelAgreement, ComparesCounts) {
  const auto more = [](torch::nn::Module& model) {
    with_weight("weight", {3})(model);
    model.register_parameter("extra", torch::ones({7}, device()));
  };
  expect_difference(with_weight("weight", {3}), more, {"nothing", "'extra'", "[7]"});
  expect_difference(more, with_weight("weight", {3}), {"'extra'", "[7]", "nothing"});
}

TEST(ModelAgreement, ComparesBuffers) {
  const auto with_buffer = [](std::int64_t size) {
    return [size](torch::nn::Module& model) {
      model.register_parameter("weight", torch::ones({2}, device()));
      model.register_buffer("mean", torch::ones({size}, device()));
    };
  };
  expect_difference(with_buffer(2), with_buffer(3), {"buffer 'mean'", "[2]", "[3]"});
}

TEST(Synchronizer, StopsAllRanksInTheRoundInWhichOneAsksForIt) {
  on_ranks([](Communicator& communicator) {
    for (const int asking : {0, communicator.world_size() - 1}) {
      auto model = on_device(torch::nn::Linear(2, 1));
      GradientSynchronizer synchronizer{*model, communicator};
      for (int round = 1; round <= 4; ++round) {
        if (round == 3 && communicator.rank() == asking) synchronizer.request_stop();
        model->forward(at::ones({1, 2}, test::on_device(at::kFloat))).sum().backward();
        EXPECT_EQ(synchronizer.stop_requested(), round == 4);
        synchronizer.wait();
        EXPECT_EQ(synchronizer.stop_requested(), round >= 3);
        synchronizer.zero_grad();
      }
    }
  });
}

}  // namespace
}  // namespace libtrain
