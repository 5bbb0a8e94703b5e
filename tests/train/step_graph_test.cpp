#include <libtrain/train/step_graph.hpp>

#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <vector>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/comm/detail/staged/staged_communicator.hpp>
#include <libtrain/optim/fused_adamw.hpp>
#include <libtrain/optim/fused_sgd.hpp>
#include <libtrain/optim/gradient_clipping.hpp>
#include <libtrain/optim/loss_scaler.hpp>
#include <libtrain/optim/moving_average.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/sync_batch_norm.hpp>
#include <libtrain/sync/wire/half_precision.hpp>
#include <libtrain/sync/wire/power_sgd.hpp>
#include <libtrain/train/autocast.hpp>

#include <tests/support/device.hpp>
#include <tests/support/fake_gpu/fake_gpu.hpp>
#include <tests/support/fresh_seed.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/models.hpp>

// On the fake GPU: eager steps and replays of a recorded one must give the same bits, since the kernels are the same.

namespace libtrain {
namespace {

using test::fake_gpu_counts;
using test::FakeGpuDelays;
using test::make_model;
using test::message_of;
using test::NoHostSynchronization;
using test::on_fresh_ranks;
using test::on_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;
using Tensors = StepGraph::Tensors;

constexpr int kSteps = 20;

class FakeDeviceGraph final : public DeviceGraph {
 public:
  explicit FakeDeviceGraph(const at::Device& device) : device_(device) {}
  void begin() override { graph_.begin(device_); }
  void end() override { graph_.end(); }
  void replay() override { graph_.replay(); }

 private:
  const at::Device device_;
  test::FakeGraph graph_;
};

std::unique_ptr<DeviceGraph> fake_graph() {
  return std::make_unique<FakeDeviceGraph>(test::device());
}

// As the default stream cannot be recorded.
class OtherStream {
 public:
  OtherStream() : guard_(c10::impl::VirtualGuardImpl(test::device().type()).getStreamFromGlobalPool(test::device())) {}

 private:
  const c10::StreamGuard guard_;
};

at::Tensor flat_state(const torch::nn::Module& module) {
  std::vector<at::Tensor> parts;
  for (const auto& parameter : module.parameters()) parts.push_back(parameter.detach().cpu().to(at::kDouble).flatten());
  for (const auto& buffer : module.buffers()) parts.push_back(buffer.cpu().to(at::kDouble).flatten());
  return at::cat(parts);
}

std::unique_ptr<torch::optim::Optimizer> make_sgd(const torch::nn::Module& module) {
  return std::make_unique<optim::FusedSgd>(module.parameters(),
                                           SGDOptions(0.125).momentum(0.9).weight_decay(0.01).nesterov(true));
}

std::unique_ptr<torch::optim::Optimizer> make_adamw(const torch::nn::Module& module) {
  return std::make_unique<optim::FusedAdamW>(module.parameters(), AdamWOptions(0.015625).amsgrad(true));
}

struct Setting {
  std::string model = "mlp";
  std::function<std::unique_ptr<torch::optim::Optimizer>(const torch::nn::Module&)> make_optimizer = make_sgd;
  SynchronizerOptions synchronizer = {.buckets = {.bucket_bytes = 2000, .first_bucket_bytes = 300}};
  std::function<std::shared_ptr<WireFormat>()> make_wire_format = {};
  bool has_scaler = false;  // and a loss that overflows in every fifth step
  bool has_autocast = false;
};

// A rank's training: step() is what a StepGraph records, or what runs without one.
class Training {
 public:
  Training(const Setting& setting, Communicator& communicator)
      : setting_(setting), rank_(communicator.rank()), model_(make_model(setting.model, at::kFloat, 1)) {
    replace_batch_norms(*model_.module, communicator);
    auto options = setting.synchronizer;
    if (setting.make_wire_format) options.wire_format = setting.make_wire_format();
    synchronizer_.emplace(*model_.module, communicator, options);
    optimizer_ = setting.make_optimizer(*model_.module);
  }

  Tensors step(const Tensors& inputs) {
    at::Tensor loss;
    {
      std::optional<Autocast> autocast;
      if (setting_.has_autocast) autocast.emplace(test::device());
      loss = (model_.forward(inputs[0]).to(at::kFloat) - inputs[1]).square().mean();
    }
    loss = loss * inputs[2];
    (setting_.has_scaler ? scaler_.scale(loss) : loss).backward();
    EXPECT_TRUE(synchronizer_->wait());
    if (setting_.has_scaler) {
      scaler_.unscale(*optimizer_);
      optim::clip_gradients(model_.module->parameters(), {.max_norm = 0.5});
      scaler_.step(*optimizer_);
      scaler_.update();
    } else {
      optimizer_->step();
    }
    synchronizer_->zero_grad();
    return {loss};
  }

  Tensors inputs(int step, std::int64_t count = 4) const {
    const auto batch = make_batch(model_, count, at::kFloat, static_cast<std::uint64_t>(100 * step + rank_));
    const double factor = setting_.has_scaler && step % 5 == 4 ? INFINITY : 1;
    return {batch.inputs, batch.targets, at::full({}, factor, test::on_device(at::kFloat))};
  }

  // Numbers that float32 holds: a recorded step reads the rate in float32, an eager one in float64.
  void set_rate(int step) {
    for (auto& group : optimizer_->param_groups()) group.options().set_lr(step < 10 ? 0.125 : 0.03125);
  }

  std::unique_ptr<StepGraph> graph(Communicator& communicator, StepGraphOptions options = {}) {
    return std::make_unique<StepGraph>(
        communicator, fake_graph(), std::vector<std::reference_wrapper<torch::optim::Optimizer>>{*optimizer_},
        [this](const Tensors& given) { return step(given); }, options);
  }

  at::Tensor state() const { return flat_state(*model_.module); }
  torch::nn::Module& module() { return *model_.module; }
  GradientSynchronizer& synchronizer() { return *synchronizer_; }
  torch::optim::Optimizer& optimizer() { return *optimizer_; }
  optim::LossScaler& scaler() { return scaler_; }

 private:
  const Setting setting_;
  const int rank_;
  test::TestModel model_;
  std::optional<GradientSynchronizer> synchronizer_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  optim::LossScaler scaler_{{.initial_scale = 8, .growth_interval = 3}};
};

void expect_equal_steps(const Setting& setting) {
  on_ranks([&](Communicator& communicator) {
    const OtherStream in_stream;
    Training eager{setting, communicator};
    Training recorded{setting, communicator};
    const auto graph = recorded.graph(communicator);
    for (int step = 0; step < kSteps; ++step) {
      eager.set_rate(step);
      recorded.set_rate(step);
      const auto loss = eager.step(eager.inputs(step))[0].detach().cpu();
      const auto replayed = graph->step(recorded.inputs(step))[0].cpu();
      ASSERT_EQ(graph->is_recorded(), step >= 3);
      ASSERT_TRUE(at::equal(loss, replayed)) << "step " << step << ": " << loss << replayed;
    }
    EXPECT_TRUE(at::equal(eager.state(), recorded.state()));
    if (!setting.has_scaler) return;
    EXPECT_EQ(eager.scaler().state().scale, recorded.scaler().state().scale);
    EXPECT_EQ(eager.scaler().state().overflows, recorded.scaler().state().overflows);
  });
}

TEST(StepGraph, ReplaysEqualEagerStepsWithSgd) {
  expect_equal_steps({});
}

TEST(StepGraph, ReplaysEqualEagerStepsWithAdamW) {
  expect_equal_steps({.model = "conv", .make_optimizer = make_adamw});
}

TEST(StepGraph, ReplaysEqualEagerStepsWithRandomDelays) {
  const FakeGpuDelays delays{test::fresh_seed()};
  expect_equal_steps({});
}

TEST(StepGraph, ReplaysSkipStepsThatOverflow) {
  expect_equal_steps({.has_scaler = true});
  expect_equal_steps({.make_optimizer = make_adamw, .has_scaler = true});
}

TEST(StepGraph, ReplaysSynchroniseBatchNorm) {
  expect_equal_steps({.model = "batch_norm"});
}

TEST(StepGraph, ReplaysCastWeightsAgain) {
  expect_equal_steps({.has_autocast = true});
}

TEST(StepGraph, ReplaysSendHalves) {
  expect_equal_steps({.make_wire_format = [] { return std::make_shared<HalfPrecisionWireFormat>(); }});
}

TEST(StepGraph, ReplaysBroadcastBuffers) {
  Setting setting{.model = "batch_norm"};
  setting.synchronizer.buffers = BufferPolicy::averaged;
  expect_equal_steps(setting);
}

TEST(StepGraph, ReplaysAverageWeights) {
  on_ranks([](Communicator& communicator) {
    const OtherStream in_stream;
    Training training{{}, communicator};
    optim::MovingAverage eager{training.module(), {.decay = 0.75}};
    optim::MovingAverage recorded{training.module(), {.decay = 0.75}};
    StepGraph graph{communicator, fake_graph(), {training.optimizer()}, [&](const Tensors& inputs) {
                      auto outputs = training.step(inputs);
                      recorded.update(training.module());
                      return outputs;
                    }};
    for (int step = 0; step < kSteps; ++step) {
      graph.step(training.inputs(step));
      eager.update(training.module());
    }
    EXPECT_EQ(eager.updates(), kSteps);
    EXPECT_EQ(recorded.updates(), 4);  // 3 that were not recorded, and the recording
    const auto averages = recorded.named_tensors();
    for (std::size_t index = 0; index < averages.size(); ++index) {
      EXPECT_TRUE(at::equal(averages[index].second.cpu(), eager.named_tensors()[index].second.cpu()))
          << averages[index].first;
    }
  });
}

// What all ranks together do in `steps`.
test::FakeGpuCounts counts_of(Communicator& communicator, const std::function<void()>& steps) {
  communicator.barrier();
  const auto before = fake_gpu_counts();
  communicator.barrier();
  steps();
  communicator.barrier();
  const auto counts = fake_gpu_counts() - before;
  communicator.barrier();
  return counts;
}

TEST(StepGraph, AReplayIsOneOperationAndNeverWaits) {
  on_ranks([](Communicator& communicator) {
    const OtherStream in_stream;
    Training training{{.has_scaler = true}, communicator};
    const auto graph = training.graph(communicator);
    for (int step = 0; step < 4; ++step) graph->step(training.inputs(step));
    std::vector<Tensors> batches;
    for (int step = 4; step < 10; ++step) batches.push_back(training.inputs(step));
    const auto replay = [&] {
      const NoHostSynchronization no_wait;
      for (const auto& batch : batches) graph->step(batch);
    };
    const auto replays = batches.size() * static_cast<std::size_t>(communicator.world_size());
    const auto counts = counts_of(communicator, replay);
    EXPECT_EQ(counts.host_synchronizations, 0u);
    EXPECT_EQ(counts.device_operations, replays * (3 + 1));  // three inputs are copied
    training.set_rate(15);
    const auto new_rates = static_cast<std::size_t>(communicator.world_size());
    EXPECT_EQ(counts_of(communicator, replay).device_operations, replays * (3 + 1) + new_rates);
  });
}

TEST(StepGraph, EagerStepsMayFollow) {
  on_ranks([](Communicator& communicator) {
    const OtherStream in_stream;
    Training eager{{}, communicator};
    Training recorded{{}, communicator};
    const auto graph = recorded.graph(communicator, {.warm_up_steps = 2});
    for (int step = 0; step < 12; ++step) {
      const bool is_smaller = step % 5 == 4;
      eager.step(eager.inputs(step, is_smaller ? 3 : 4));
      if (is_smaller) {
        recorded.step(recorded.inputs(step, 3));
      } else {
        graph->step(recorded.inputs(step));
      }
    }
    EXPECT_TRUE(at::equal(eager.state(), recorded.state()));
  });
}

TEST(StepGraph, RecordsAGroupOfOne) {
  const auto gpu = test::fake_gpu();
  const c10::DeviceGuard on_device(gpu);
  const OtherStream in_stream;
  bool is_recording = false;
  detail::SingleCommunicator communicator{gpu, [&](const c10::Stream&) { return is_recording; }};
  Training eager{{}, communicator};
  Training recorded{{}, communicator};
  const std::vector<std::reference_wrapper<torch::optim::Optimizer>> optimizers{recorded.optimizer()};
  int calls = 0;
  StepGraph graph{communicator, fake_graph(), optimizers, [&](const Tensors& inputs) {
                    is_recording = ++calls > 3;
                    auto outputs = recorded.step(inputs);
                    is_recording = false;
                    return outputs;
                  }};
  for (int step = 0; step < kSteps; ++step) {
    eager.step(eager.inputs(step));
    graph.step(recorded.inputs(step));
  }
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(recorded.synchronizer().rounds(), 4);
  EXPECT_TRUE(at::equal(eager.state(), recorded.state()));
}

// ---- Refusals.

TEST(StepGraph, RefusesWhatItCannotRecord) {
  detail::SingleCommunicator on_host;
  const auto body = [](const Tensors& inputs) { return inputs; };
  EXPECT_THAT(message_of<UsageError>([&] { StepGraph(on_host, fake_graph(), {}, body); }), HasSubstr("is on the CPU"));
  on_ranks([&](Communicator& communicator) {
    const OtherStream in_stream;
    const auto weight = at::ones({2}, test::on_device(at::kFloat)).set_requires_grad(true);
    torch::optim::SGD sgd(std::vector<at::Tensor>{weight}, SGDOptions(0.1));
    EXPECT_THAT(message_of<UsageError>([&] { StepGraph(communicator, fake_graph(), {sgd}, body); }),
                HasSubstr("Use FusedSgd"));
    EXPECT_THAT(message_of<UsageError>([&] { StepGraph(communicator, fake_graph(), {}, body, {.warm_up_steps = 0}); }),
                HasSubstr("warm_up_steps is 0"));
    EXPECT_THAT(message_of<UsageError>([&] { StepGraph(communicator, nullptr, {}, body); }), HasSubstr("no graph"));
    detail::SingleCommunicator without_graphs{test::device()};
    EXPECT_THAT(message_of<UsageError>([&] { StepGraph(without_graphs, fake_graph(), {}, body); }),
                HasSubstr("the backend 'single'"));
    detail::StagedCommunicator staged{std::make_shared<detail::SingleCommunicator>(), test::device()};
    EXPECT_THAT(message_of<UsageError>([&] { StepGraph(staged, fake_graph(), {}, body); }),
                HasSubstr("through host memory"));
  });
}

TEST(StepGraph, RefusesOtherInputsAndStreams) {
  on_ranks([](Communicator& communicator) {
    StepGraph graph{communicator, fake_graph(), {}, [](const Tensors& inputs) { return Tensors{inputs[0] * 2}; }};
    const auto message = [&](const Tensors& inputs) { return message_of<UsageError>([&] { graph.step(inputs); }); };
    EXPECT_THAT(message({}), HasSubstr("the default stream"));
    {
      const OtherStream in_stream;
      const auto input = at::ones({2, 3}, test::on_device(at::kFloat));
      for (int step = 0; step < 6; ++step) {
        EXPECT_EQ(graph.step({input * step})[0].sum().item<float>(), static_cast<float>(12 * step));
        EXPECT_THAT(message({input, input}), HasSubstr("was given 2 inputs, and 1 in its first step"));
        EXPECT_THAT(message({input.narrow(0, 0, 1)}),
                    AllOf(HasSubstr("Input 0"), HasSubstr("shape [1, 3]"), HasSubstr("shape [2, 3]")));
        EXPECT_THAT(message({input.to(at::kDouble)}), HasSubstr("dtype Double, but shape [2, 3] and dtype Float"));
        EXPECT_THAT(message({input.cpu()}), HasSubstr("is on cpu"));
        EXPECT_THAT(message({at::Tensor()}), HasSubstr("is undefined"));
        const Autocast autocast{test::device()};
        EXPECT_THAT(message({input}), HasSubstr("cache_weights = false"));
      }
    }
    const OtherStream in_another;
    EXPECT_THAT(message({}), HasSubstr("another current stream"));
  });
}

// What the body throws while it is recorded, and whether the stream is recorded no more.
std::string message_of_recording(Communicator& communicator, Training& training, const StepGraph::Body& body,
                                 StepGraphOptions options = {}) {
  std::vector<std::reference_wrapper<torch::optim::Optimizer>> optimizers{training.optimizer()};
  StepGraph graph{communicator, fake_graph(), optimizers, body, options};
  for (int step = 0; step < options.warm_up_steps; ++step) graph.step(training.inputs(step));
  auto message = message_of<UsageError>([&] { graph.step(training.inputs(0)); });
  EXPECT_FALSE(communicator.is_recording());
  EXPECT_EQ(at::ones({3}, test::on_device(at::kFloat)).sum().item<float>(), 3);
  EXPECT_FALSE(graph.is_recorded());
  EXPECT_THAT(message_of<UsageError>([&] { graph.step(training.inputs(0)); }), HasSubstr("Create another one"));
  return message;
}

TEST(StepGraph, AHostThatReadsTheDeviceIsToldSo) {
  on_ranks([](Communicator& communicator) {
    const OtherStream in_stream;
    Training training{{}, communicator};
    const auto body = [&](const Tensors& inputs) {
      auto outputs = training.step(inputs);
      static_cast<void>(outputs[0].item<float>());
      return outputs;
    };
    EXPECT_THAT(message_of_recording(communicator, training, body),
                AllOf(HasSubstr("The step cannot be recorded into a graph: "), HasSubstr("move such calls out")));
    // Everything is in order again.
    const auto graph = training.graph(communicator);
    for (int step = 0; step < 6; ++step) graph->step(training.inputs(step));
    EXPECT_TRUE(graph->is_recorded());
  });
}

TEST(StepGraph, AnExceptionEndsTheRecordingOnAllRanks) {
  on_ranks([](Communicator& communicator) {
    const OtherStream in_stream;
    Training training{{}, communicator};
    int calls = 0;
    const auto body = [&](const Tensors& inputs) {
      auto outputs = training.step(inputs);
      if (++calls > 3 && communicator.rank() + 1 == communicator.world_size()) throw UsageError("No such class.");
      return outputs;
    };
    EXPECT_THAT(message_of_recording(communicator, training, body), HasSubstr("No such class."));
    // The optimizer reads the rates on the host again.
    const auto graph = training.graph(communicator);
    for (int step = 0; step < 6; ++step) graph->step(training.inputs(step));
  });
}

TEST(StepGraph, ACollectiveThatIsNotWaitedForIsNamed) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    const OtherStream in_stream;
    Training training{{}, communicator};
    const auto numbers = at::ones({4}, test::on_device(at::kFloat));
    const auto body = [&](const Tensors& inputs) {
      auto outputs = training.step(inputs);
      static_cast<void>(communicator.all_reduce(numbers));
      return outputs;
    };
    EXPECT_THAT(message_of_recording(communicator, training, body), HasSubstr("cannot be recorded"));
  });
}

TEST(StepGraph, OutputsOnTheHostAreRefused) {
  on_ranks([](Communicator& communicator) {
    const OtherStream in_stream;
    StepGraph graph{communicator, fake_graph(), {}, [](const Tensors&) { return Tensors{at::ones({2})}; }};
    EXPECT_THAT(message_of<UsageError>([&] { graph.step({}); }), HasSubstr("returned a tensor on cpu"));
  });
}

std::string message_of_round(Communicator& communicator, const Setting& setting, StepGraphOptions options = {}) {
  Training training{setting, communicator};
  const auto body = [&](const Tensors& inputs) { return training.step(inputs); };
  return message_of_recording(communicator, training, body, options);
}

TEST(StepGraph, RoundsThatReplaysWouldNotRepeatAreRefused) {
  on_ranks([](Communicator& communicator) {
    const OtherStream in_stream;
    const auto refused = HasSubstr("A round cannot be recorded into a graph");
    for (const auto non_finite : {NonFinite::skipped, NonFinite::fatal}) {
      Setting setting;
      setting.synchronizer.non_finite = non_finite;
      EXPECT_THAT(message_of_round(communicator, setting), AllOf(refused, HasSubstr("NonFinite::unchecked")));
    }
    const auto make_power_sgd = [] { return std::make_shared<PowerSgdWireFormat>(PowerSgdOptions{.rank = 1}); };
    EXPECT_THAT(message_of_round(communicator, {.make_wire_format = make_power_sgd}),
                AllOf(refused, HasSubstr("powersgd of rank 1")));

    Training training{{}, communicator};
    int calls = 0;
    const auto weigh = [&](const Tensors& inputs) {
      if (++calls > 3) training.synchronizer().set_samples(4);
      return training.step(inputs);
    };
    EXPECT_THAT(message_of_recording(communicator, training, weigh), HasSubstr("set_samples() or join()"));
    training.synchronizer().set_samples(4);
    calls = 0;
    const auto weighed = [&](const Tensors& inputs) {
      if (++calls < 3) training.synchronizer().set_samples(4);
      auto outputs = training.step(inputs);
      if (calls == 3) training.synchronizer().set_samples(4);
      return outputs;
    };
    EXPECT_THAT(message_of_recording(communicator, training, weighed), AllOf(refused, HasSubstr("equally large")));
    training.synchronizer().zero_grad();
    calls = 0;
    const auto freeze = [&](const Tensors& inputs) {
      if (++calls > 3) training.module().parameters().front().set_requires_grad(false);
      return training.step(inputs);
    };
    EXPECT_THAT(message_of_recording(communicator, training, freeze), AllOf(refused, HasSubstr("frozen")));
  });
}

TEST(StepGraph, ARoundBeforeTheSecondPlanIsRefused) {
  on_ranks([](Communicator& communicator) {
    const OtherStream in_stream;
    Training training{{}, communicator};
    int calls = 0;
    const auto body = [&](const Tensors& inputs) {
      return ++calls == 1 ? Tensors{inputs[0] * 2} : training.step(inputs);
    };
    EXPECT_THAT(message_of_recording(communicator, training, body, {.warm_up_steps = 1}),
                HasSubstr("two rounds without recording"));
  });
}

TEST(StepGraph, ABatchNormWithoutMomentumIsRefused) {
  on_ranks([](Communicator& communicator) {
    const OtherStream in_stream;
    const std::shared_ptr<Communicator> own = communicator.split(0, communicator.rank());
    SyncBatchNorm norm{torch::nn::BatchNormOptions(3).momentum(std::nullopt), own};
    norm->to(test::device());
    StepGraph graph{
        communicator, fake_graph(), {}, [&](const Tensors& inputs) { return Tensors{norm->forward(inputs[0])}; }};
    const auto input = at::ones({4, 3}, test::on_device(at::kFloat));
    for (int step = 0; step < 3; ++step) graph.step({input});
    EXPECT_THAT(message_of<UsageError>([&] { graph.step({input}); }), HasSubstr("Set a momentum"));
  });
}

// Each replay would use the decay of the recording.
TEST(StepGraph, AnAverageThatWarmsUpIsRefused) {
  on_ranks([](Communicator& communicator) {
    const OtherStream in_stream;
    Training training{{}, communicator};
    optim::MovingAverage average{training.module(), {.decay = 0.5, .warm_up = true}};
    const auto body = [&](const Tensors& inputs) {
      auto outputs = training.step(inputs);
      average.update(training.module());
      return outputs;
    };
    EXPECT_THAT(message_of_recording(communicator, training, body),
                AllOf(HasSubstr("MovingAverageOptions::warm_up"), HasSubstr("after StepGraph::step()")));
    EXPECT_EQ(average.updates(), 3);
    average.update(training.module());
    EXPECT_EQ(average.updates(), 4);
  });
}

TEST(StepGraph, RanksThatRecordDifferentCollectivesAreTold) {
  on_fresh_ranks(2, test::kTenSeconds, [](Communicator& communicator) {
    const OtherStream in_stream;
    const auto numbers = at::ones({4}, test::on_device(at::kFloat));
    int calls = 0;
    StepGraph graph{communicator, fake_graph(), {}, [&](const Tensors& inputs) {
                      if (++calls <= 3 || communicator.rank() == 0) communicator.all_reduce(numbers).wait();
                      return inputs;
                    }};
    for (int step = 0; step < 3; ++step) graph.step({numbers});
    EXPECT_THAT(message_of<CommunicationError>([&] { graph.step({numbers}); }),
                AllOf(HasSubstr("different collectives"), HasSubstr("after 4 collectives")));
  });
}

TEST(StepGraph, AReplayThatDoesNotEndFailsAtItsDeadline) {
  std::counting_semaphore<4> over{0};
  on_fresh_ranks(2, {.timeout = std::chrono::seconds(3)}, [&](Communicator& communicator) {
    const OtherStream in_stream;
    const auto numbers = at::ones({4}, test::on_device(at::kFloat));
    StepGraph graph{communicator, fake_graph(), {}, [&](const Tensors& inputs) {
                      communicator.all_reduce(numbers).wait();
                      return inputs;
                    }};
    for (int step = 0; step < 20; ++step) graph.step({numbers});
    communicator.barrier();
    if (communicator.rank() != 0) {
      // They do not replay, and do not leave either: that would end the collective before its deadline.
      EXPECT_TRUE(over.try_acquire_for(std::chrono::seconds(30)));
      return;
    }
#ifdef NDEBUG
    graph.step({numbers});
    static_cast<void>(numbers.sum().cpu());  // until the watchdog ends it
    EXPECT_THAT(message_of<CommunicationError>([&] { graph.step({numbers}); }),
                HasSubstr("for the replay of a recorded step"));
#else  // each collective is compared on the host before it begins on the device
    EXPECT_THAT(message_of<CommunicationError>([&] { graph.step({numbers}); }), HasSubstr("did not arrive before"));
#endif
    over.release(communicator.world_size() - 1);
  });
}

}  // namespace
}  // namespace libtrain
