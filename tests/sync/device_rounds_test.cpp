// What a synchronizer does on a device and not on the host: it never waits for the device, unless NonFinite asks for
// it, and finds some mistakes some rounds later.

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/comm/detail/device/stream_mark.hpp>
#include <libtrain/optim/fused_sgd.hpp>
#include <libtrain/sync/broadcast.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/sharded_optimizer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/expect_told.hpp>
#include <tests/support/fake_gpu/fake_gpu.hpp>
#include <tests/support/fresh_seed.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

using test::BlockedStream;
using test::device;
using test::expect_told;
using test::expect_told_of_one;
using test::fake_gpu_counts;
using test::FakeGpuDelays;
using test::FakeGraph;
using test::is_odd_one;
using test::NoHostSynchronization;
using test::on_ranks;
using test::Pair;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using torch::optim::SGDOptions;

// Rounds until what was seen in the first one is looked at.
constexpr int kUntilSeen = 5;

struct PairTraining {
  explicit PairTraining(Communicator& communicator, const SynchronizerOptions& options = {})
      : synchronizer(model, communicator, options), sgd(model.parameters(), SGDOptions(0.01).momentum(0.9)) {}

  void round(double of_left, double of_right) {
    model.loss(of_left, of_right).backward();
    synchronizer.wait();
    sgd.step();
    synchronizer.zero_grad();
  }

  Pair model;
  GradientSynchronizer synchronizer;
  optim::FusedSgd sgd;
};

// What the process logs as warnings while it exists.
class Warnings {
 public:
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
  test::ScopedLogSink sink_{[this](LogLevel level, const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (level >= LogLevel::warning) lines_.push_back(line);
  }};
};

TEST(DeviceRounds, ReportNanSomeRoundsLater) {
  Warnings warnings;
  on_ranks([&](Communicator& communicator) {
    PairTraining training{communicator};
    for (int round = 1; round < kUntilSeen; ++round) training.round(std::numeric_limits<double>::quiet_NaN(), 1);
    communicator.barrier();
    if (communicator.rank() == 0) {
      EXPECT_THAT(warnings.take(), IsEmpty());
    }
    communicator.barrier();
    training.round(1, 1);
    communicator.barrier();
    if (communicator.rank() != 0) return;
    EXPECT_THAT(warnings.take(), ElementsAre(AllOf(HasSubstr("'left' holds NaN"), HasSubstr("after round 1"))));
  });
}

TEST(DeviceRounds, ReportARankWhoseGradientsWereZero) {
  Warnings warnings;
  on_ranks([&](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    PairTraining training{communicator};
    const auto mine = is_odd_one(communicator) ? 0.0 : 1.0;
    for (int round = 0; round < kUntilSeen; ++round) training.round(mine, mine);
    communicator.barrier();
    if (communicator.rank() != 0) return;
    EXPECT_THAT(warnings.take(),
                ElementsAre(AllOf(HasSubstr("Every gradient of rank " + std::to_string(communicator.world_size() - 1)),
                                  HasSubstr("was zero in round 1"), HasSubstr("set_samples("))));
  });
}

TEST(DeviceRounds, ReportAStepBeforeWaitSomeRoundsLater) {
  on_ranks([](Communicator& communicator) {
    PairTraining training{communicator};
    const auto rounds = [&] {
      for (int round = 0; round < kUntilSeen; ++round) {
        training.model.loss(1, 1).backward();
        if (round == 0 && is_odd_one(communicator)) training.sgd.step();
        training.synchronizer.wait();
        training.synchronizer.zero_grad();
      }
    };
    expect_told_of_one(communicator, rounds, {"was stepped before its gradient was averaged", "This was in round 1"});
    training.synchronizer.zero_grad();
    broadcast_tensors(training.model.parameters(), communicator);
    training.round(1, 1);
  });
}

TEST(DeviceRounds, ReportDivergedReplicasSomeRoundsLater) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    PairTraining training{communicator};
    const torch::NoGradGuard no_grad;
    if (is_odd_one(communicator)) training.model.right.mul_(1.5);
    const torch::AutoGradMode with_grad(true);
    const auto rounds = [&] {
      for (int round = 0; round < kUntilSeen; ++round) training.round(1, 1);
    };
    expect_told_of_one(communicator, rounds,
                       {"The replicas have diverged", "parameter 'right'", "Replicas::unchecked"});
  });
}

// Each rank has the average of its own shard alone: what reads whole gradients is noticed in the next step.
TEST(DeviceRounds, ReportGradientsThatWereChangedBeforeAShardedStep) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    Pair model;
    ShardedOptimizer optimizer{model, SGDOptions(0.01)};
    GradientSynchronizer synchronizer{model, communicator, {.wire_format = optimizer.wire_format()}};
    const auto step = [&](bool changes) {
      model.loss(1, 1).backward();
      synchronizer.wait();
      if (changes) {
        const torch::NoGradGuard no_grad;
        for (const auto& parameter : model.parameters()) parameter.grad().mul_(0.5);
      }
      optimizer.step();
      synchronizer.zero_grad();
    };
    step(false);
    step(false);
    step(true);
    EXPECT_THAT(test::message_of<UsageError>([&] { step(false); }), HasSubstr("were modified after wait()"));
  });
}

TEST(DeviceRounds, ReportShardedRoundsThatAddUp) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    Pair model;
    ShardedOptimizer optimizer{model, SGDOptions(0.01)};
    GradientSynchronizer synchronizer{model, communicator, {.wire_format = optimizer.wire_format()}};
    const auto round = [&] {
      model.loss(1, 1).backward();
      synchronizer.wait();
    };
    const auto rounds_without_zero_grad = [&] {
      for (int count = 0; count < 4; ++count) {
        round();
        optimizer.step();
      }
    };
    round();
    optimizer.step();
    synchronizer.zero_grad();
    EXPECT_THAT(test::message_of<UsageError>(rounds_without_zero_grad),
                HasSubstr("was added to that of the round before"));
  });
}

struct ManyParameters : torch::nn::Module {
  explicit ManyParameters(int count) {
    for (int index = 0; index < count; ++index) {
      parameters.push_back(register_parameter("p" + std::to_string(index), torch::ones({8}, device())));
    }
  }

  at::Tensor loss() const { return torch::cat(parameters).sum(); }

  std::vector<at::Tensor> parameters;
};

TEST(DeviceRounds, NeverWaitForTheDeviceUnlessNanIsLookedFor) {
  on_ranks([](Communicator& communicator) {
    PairTraining training{communicator};
    training.round(1, 1);  // the host makes buckets and connections
    training.round(1, 1);
    for (int round = 0; round < 20; ++round) {
      {
        const NoHostSynchronization none;
        training.round(1, 1);
      }
      detail::current_stream(device()).synchronize();  // a host that is four rounds ahead waits
    }
  });
}

c10::Stream another_stream() {
  return c10::impl::VirtualGuardImpl(device().type()).getStreamFromGlobalPool(device());
}

// Autograd adds to a gradient on the stream that was current when the node that does it was made. It lives as long as
// the result.
std::shared_ptr<torch::autograd::Node> accumulate_in(const c10::Stream& stream, const at::Tensor& parameter) {
  const c10::StreamGuard in_stream(stream);
  return torch::autograd::impl::grad_accumulator(parameter);
}

TEST(DeviceRounds, WaitForGradientsThatAnotherStreamAccumulates) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    const auto other = another_stream();
    const auto accumulator = accumulate_in(other, model.right);
    GradientSynchronizer synchronizer{model, communicator};
    for (int round = 0; round < 20; ++round) {
      {
        const auto no_sync = synchronizer.no_sync();
        model.loss(1, 1).backward();
      }
      std::optional<BlockedStream> blocked{other};
      model.loss(2, 2).backward();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      blocked.reset();
      synchronizer.wait();
      test::expect_all(model.left.grad(), 3, "left");
      test::expect_all(model.right.grad(), 3, "right");
      synchronizer.zero_grad();
    }
  });
}

// To gradients that are in their buckets already.
TEST(DeviceRounds, WaitForGradientsThatAnotherStreamAccumulatesInPlace) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    const auto other = another_stream();
    const auto accumulator = accumulate_in(other, model.right);
    GradientSynchronizer synchronizer{model, communicator};
    const double mine = communicator.rank() + 1;
    for (int round = 0; round < 20; ++round) {
      std::optional<BlockedStream> blocked{other};
      model.loss(mine, mine).backward();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      blocked.reset();
      synchronizer.wait();
      test::expect_all(model.left.grad(), test::mean_rank_plus_one(communicator), "left");
      test::expect_all(model.right.grad(), test::mean_rank_plus_one(communicator), "right");
      for (const auto& parameter : model.parameters()) parameter.grad().zero_();  // as zero_grad(false) does
    }
  });
}

TEST(DeviceRounds, HoldGradientsOfAnotherStream) {
  const test::FakeGpuDelays delays{test::fresh_seed()};
  on_ranks([](Communicator& communicator) {
    Pair model;
    const auto other = another_stream();
    const auto accumulator = accumulate_in(other, model.right);
    GradientSynchronizer synchronizer{model, communicator};
    for (int round = 0; round < 40; ++round) {
      const auto of_left = model.left.sum();
      at::Tensor of_right;
      {
        const c10::StreamGuard in_other(other);
        of_right = (model.right * 2).sum();
      }
      detail::StreamMark{other}.block_current_stream();
      (of_left + of_right).backward();
      {
        const c10::StreamGuard in_other(other);
        static_cast<void>(torch::full({4}, 77, test::on_device(at::kFloat)));  // in memory that is free by now
      }
      synchronizer.wait();
      test::expect_all(model.right.grad(), 2, "right");
      synchronizer.zero_grad();
    }
  });
}

TEST(DeviceRounds, CountTheTimeThatTheStreamHasWaited) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    PairTraining training{communicator};
    const auto waited = [&] {
      detail::current_stream(device()).synchronize();
      return training.synchronizer.statistics().seconds_waiting;
    };
    training.round(1, 1);
    training.round(1, 1);
    const auto before = waited();
    std::optional<BlockedStream> blocked;
    if (communicator.rank() == 0) blocked.emplace(detail::current_stream(device()));
    training.round(1, 1);
    communicator.barrier();
    if (blocked) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    blocked.reset();
    const auto seconds = waited() - before;
    EXPECT_LT(seconds, 60);
    if (communicator.rank() != 0) {
      EXPECT_GT(seconds, 0.1);
    }
  });
}

TEST(DeviceRounds, WaitForTheDeviceOnceIfNanIsLookedFor) {
  for (const auto non_finite : {NonFinite::skipped, NonFinite::fatal}) {
    std::uint64_t rounds_of_ranks = 0;
    std::uint64_t waits = 0;
    on_ranks([&](Communicator& communicator) {
      PairTraining training{communicator, {.non_finite = non_finite}};
      for (int round = 0; round < 2; ++round) training.round(1, 1);
      communicator.barrier();
      const auto before = fake_gpu_counts();
      communicator.barrier();
      for (int round = 0; round < 20; ++round) training.round(1, 1);
      communicator.barrier();
      if (communicator.rank() == 0) {
        waits += (fake_gpu_counts() - before).host_synchronizations;
        rounds_of_ranks += 20 * static_cast<std::uint64_t>(communicator.world_size());
      }
      communicator.barrier();
    });
    EXPECT_LE(waits, rounds_of_ranks);
  }
}

// What was recorded has not run: neither its reductions nor its gradients may be used.
TEST(DeviceRounds, BeginAnewAfterARecordingThatEndedBeforeWait) {
  on_ranks([](Communicator& communicator) {
    const c10::StreamGuard in_stream(another_stream());  // the default one cannot be recorded
    for (const bool calls_zero_grad : {true, false}) {
      PairTraining training{communicator};
      training.round(1, 1);
      training.round(1, 1);
      FakeGraph graph;
      graph.begin(device());
      training.model.loss(100, 100).backward();
      static_cast<void>(detail::failure_of([&] { graph.end(); }));  // the reductions were not waited for
      if (calls_zero_grad) training.synchronizer.zero_grad();
      const double mine = communicator.rank() + 1;
      training.model.loss(mine, 3).backward();
      training.synchronizer.wait();
      test::expect_all(training.model.left.grad(), test::mean_rank_plus_one(communicator), "left");
      test::expect_all(training.model.right.grad(), 3, "right");
      EXPECT_EQ(training.synchronizer.rounds(), 3);
    }
  });
}

TEST(DeviceRounds, RefuseToContinueInARecording) {
  on_ranks([](Communicator& communicator) {
    const c10::StreamGuard in_stream(another_stream());
    PairTraining training{communicator};
    training.round(1, 1);
    training.round(1, 1);
    {
      const auto accumulating = training.synchronizer.no_sync();
      training.model.loss(1, 1).backward();
    }
    FakeGraph graph;
    graph.begin(device());
    EXPECT_THAT(test::message_of<UsageError>([&] { training.model.loss(1, 1).backward(); }),
                HasSubstr("began before the recording"));
    static_cast<void>(detail::failure_of([&] { graph.end(); }));
    training.synchronizer.zero_grad();
    training.round(1, 1);
    EXPECT_EQ(training.synchronizer.rounds(), 3);
  });
}

// Operations of `rounds` steps of all ranks.
template <typename Step>
std::uint64_t operations_of(Communicator& communicator, int rounds, const Step& step) {
  step();  // the first round plans anew
  step();
  communicator.barrier();
  const auto before = fake_gpu_counts();
  communicator.barrier();
  for (int round = 0; round < rounds; ++round) step();
  communicator.barrier();
  const auto operations = (fake_gpu_counts() - before).device_operations;
  communicator.barrier();
  return operations;
}

TEST(DeviceRounds, NeedFewOperationsForAnyNumberOfParameters) {
  for (const int parameters : {10, 1000}) {
    SCOPED_TRACE(parameters);
    on_ranks([parameters](Communicator& communicator) {
      if (communicator.world_size() > 2) return;
      constexpr int kRounds = 16;
      ManyParameters alone{parameters};
      const auto local = operations_of(communicator, kRounds, [&] {
        alone.loss().backward();
        alone.zero_grad();
      });
      ManyParameters model{parameters};
      GradientSynchronizer synchronizer{model, communicator, {.buckets = {.bucket_bytes = 16 << 10}}};
      const auto synchronized = operations_of(communicator, kRounds, [&] {
        model.loss().backward();
        synchronizer.wait();
        synchronizer.zero_grad();
      });
      const auto buckets = synchronizer.buckets().size();
      const auto steps = static_cast<double>(kRounds * communicator.world_size());
      const auto of_a_step = (static_cast<double>(synchronized) - static_cast<double>(local)) / steps;
      EXPECT_LE(of_a_step, static_cast<double>(4 * buckets + 8));
    });
  }
}

TEST(DeviceRounds, WaitReturnsWhileTheStreamIsBlocked) {
  on_ranks([](Communicator& communicator) {
    PairTraining training{communicator, {.buckets = {16, 16}}};
    training.round(1, 1);
    training.round(1, 1);
    {
      const BlockedStream blocked{detail::current_stream(device())};
      training.model.loss(1, 1).backward();
      const Stopwatch stopwatch;
      training.synchronizer.wait();
      // Many times the 50 ms that it may take on a machine of its own: the ranks share two cores with other tests.
      EXPECT_LT(stopwatch.seconds(), 5.0);
    }
    test::expect_all(training.model.left.grad(), 1, "left");
  });
}

// A parameter whose gradient arrives last, and says what was queued before.
TEST(DeviceRounds, ReduceTheFirstBucketBeforeTheLastGradient) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    Pair model;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}, .replan = false}};
    const auto reductions = [&] {
      int count = 0;
      for (const auto& record : communicator.recent_collectives()) {
        count += record.what.find("for bucket") != std::string::npos ? 1 : 0;
      }
      return count;
    };
    int before_last = -1;
    model.left.register_hook([&](const at::Tensor&) { before_last = reductions(); });
    model.loss(1, 1).backward();
    synchronizer.wait();
    EXPECT_GE(before_last, 1);
    EXPECT_EQ(reductions(), 2);
  });
}

// Removing a wait between streams, or a hold on a tensor, makes this fail.
TEST(DeviceRounds, EqualTheHostUnderRandomDelays) {
  const FakeGpuDelays delays{20261125, std::chrono::microseconds(100)};
  on_ranks([](Communicator& communicator) {
    const auto ranks = communicator.world_size();
    PairTraining training{communicator, {.buckets = {16, 16}}};
    double left = 1;
    double velocity = 0;
    for (int round = 0; round < 1000; ++round) {
      const double mine = 1 + (round + communicator.rank()) % 3;
      training.round(mine, 2 * mine);
      double mean = 0;
      for (int rank = 0; rank < ranks; ++rank) mean += (1 + (round + rank) % 3) / static_cast<double>(ranks);
      velocity = 0.9 * velocity + mean;
      left -= 0.01 * velocity;
    }
    const auto trained = training.model.left.detach().cpu().to(at::kDouble);
    EXPECT_TRUE(torch::allclose(trained, torch::full_like(trained, left), 1e-4, 1e-4)) << trained << left;
  });
}

}  // namespace
}  // namespace libtrain
