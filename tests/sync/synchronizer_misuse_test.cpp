// What goes wrong in a round is told to all ranks, on ranks as threads and under mpirun.

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/wire_format.hpp>

#include <tests/support/expect_told.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

using test::device;
using test::expect_all;
using test::expect_told;
using test::expect_told_of_one;
using test::is_odd_one;
using test::kTenSeconds;
using test::message_of;
using test::on_fresh_ranks;
using test::on_ranks;
using test::Pair;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A model, its synchronizer, and what may be done with them.
struct Training {
  explicit Training(Communicator& communicator, SynchronizerOptions options = {})
      : synchronizer(model, communicator, std::move(options)) {}

  void backward() { model.loss(1, 2).backward(); }
  // Leaves the bucket that holds both parameters unfilled.
  void backward_of_left() { model.left.sum().backward(); }
  void backward_under_no_sync() {
    const auto guard = synchronizer.no_sync();
    backward();
  }

  Pair model;
  GradientSynchronizer synchronizer;
  torch::optim::SGD optimizer{model.parameters(), torch::optim::SGDOptions(0.1)};
};

TEST(SynchronizerMisuse, WaitWithoutBackward) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    Training training{communicator};
    expect_told(communicator, [&] { training.synchronizer.wait(); }, {"wait()", "without a backward()"});
  });
}

TEST(SynchronizerMisuse, WaitWithoutBackwardOnOneRank) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    Training training{communicator};
    const auto round = [&] {
      if (!is_odd_one(communicator)) training.backward();
      training.synchronizer.wait();
    };
    expect_told_of_one(communicator, round, {"wait()", "without a backward()"});
    // A round that failed is over: the next one is right.
    training.synchronizer.zero_grad();
    training.backward();
    EXPECT_TRUE(training.synchronizer.wait());
    expect_all(training.model.left.grad(), 1, "left");
    expect_all(training.model.right.grad(), 2, "right");
  });
}

TEST(SynchronizerMisuse, WaitAfterPassesUnderNoSyncOnly) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    Training training{communicator};
    training.backward_under_no_sync();
    expect_told(communicator, [&] { training.synchronizer.wait(); }, {"no_sync()", "backward()"});
  });
}

TEST(SynchronizerMisuse, WaitAfterPassesUnderNoSyncOnlyOnOneRank) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    Training training{communicator};
    const auto round = [&] {
      if (is_odd_one(communicator)) {
        training.backward_under_no_sync();
      } else {
        training.backward();
      }
      training.synchronizer.wait();
    };
    expect_told_of_one(communicator, round, {"no_sync()", "backward()"});
  });
}

TEST(SynchronizerMisuse, WaitWhileAGuardLives) {
  on_ranks([](Communicator& communicator) {
    Training training{communicator};
    {
      const auto guard = training.synchronizer.no_sync();
      training.backward();
      EXPECT_THAT(message_of<UsageError>([&] { training.synchronizer.wait(); }), HasSubstr("no_sync()"));
    }
    // The round is over, and what it had accumulated is lost.
    training.synchronizer.zero_grad();
    training.backward();
    EXPECT_TRUE(training.synchronizer.wait());
    expect_all(training.model.left.grad(), 1, "left");
  });
}

TEST(SynchronizerMisuse, NoSyncBetweenBackwardAndWait) {
  on_ranks([](Communicator& communicator) {
    Training training{communicator};
    training.backward();
    EXPECT_THAT(message_of<UsageError>([&] { training.backward_under_no_sync(); }),
                AllOf(HasSubstr("no_sync()"), HasSubstr("between backward() and wait()")));
    // The round is over.
    training.backward();
    EXPECT_TRUE(training.synchronizer.wait());
  });
}

TEST(SynchronizerMisuse, SecondBackwardBeforeWait) {
  on_ranks([](Communicator& communicator) {
    Training training{communicator};
    training.backward();
    EXPECT_THAT(message_of<UsageError>([&] { training.backward(); }),
                AllOf(HasSubstr("second gradient"), HasSubstr("Call wait()"), HasSubstr("no_sync()")));
  });
}

TEST(SynchronizerMisuse, SecondBackwardOnOneRankWhileABucketIsLeft) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    Training training{communicator};
    const auto round = [&] {
      if (is_odd_one(communicator)) {
        training.backward_of_left();
        training.backward_of_left();
      } else {
        training.backward();
      }
      training.synchronizer.wait();
    };
    expect_told_of_one(communicator, round, {"'left'", "second gradient", "Call wait()", "no_sync()"});
  });
}

TEST(SynchronizerMisuse, SecondBackwardOnOneRankAfterAllBuckets) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    Training training{communicator};
    training.backward();
    const auto end_of_round = [&] {
      if (is_odd_one(communicator)) training.backward();
      training.synchronizer.wait();
    };
    expect_told_of_one(communicator, end_of_round, {"second gradient", "Call wait()"});
    // The next round is right.
    training.synchronizer.zero_grad();
    training.backward();
    EXPECT_TRUE(training.synchronizer.wait());
    expect_all(training.model.right.grad(), 2, "right");
  });
}

TEST(SynchronizerMisuse, ZeroGradBetweenBackwardAndWait) {
  on_ranks([](Communicator& communicator) {
    Training training{communicator};
    training.backward();
    EXPECT_THAT(message_of<UsageError>([&] { training.synchronizer.zero_grad(); }),
                AllOf(HasSubstr("zero_grad()"), HasSubstr("between backward() and wait()"), HasSubstr("Call wait()")));
    // The round is over.
    training.synchronizer.zero_grad();
    EXPECT_FALSE(training.model.left.grad().defined());
  });
}

TEST(SynchronizerMisuse, ZeroGradOnOneRankWhileABucketIsLeft) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    Training training{communicator};
    const auto round = [&] {
      if (is_odd_one(communicator)) {
        training.backward_of_left();
        training.synchronizer.zero_grad();
      } else {
        training.backward();
      }
      training.synchronizer.wait();
    };
    expect_told_of_one(communicator, round, {"zero_grad()", "between backward() and wait()", "Call wait()"});
  });
}

TEST(SynchronizerMisuse, ZeroGradOnOneRankAfterAllBuckets) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    Training training{communicator};
    training.backward();
    const auto end_of_round = [&] {
      if (is_odd_one(communicator)) training.synchronizer.zero_grad();
      training.synchronizer.wait();
    };
    expect_told_of_one(communicator, end_of_round, {"zero_grad()", "Call wait()"});
    // The next round is right.
    training.synchronizer.zero_grad();
    training.backward();
    EXPECT_TRUE(training.synchronizer.wait());
    expect_all(training.model.right.grad(), 2, "right");
  });
}

// On a device this is found some rounds later: DeviceRounds.
TEST(HostOnlySynchronizerMisuse, StepBeforeWait) {
  on_ranks([](Communicator& communicator) {
    Training training{communicator};
    training.backward();
    training.optimizer.step();
    EXPECT_THAT(message_of<UsageError>([&] { training.synchronizer.wait(); }),
                AllOf(HasSubstr("was stepped"), HasSubstr("Call wait()"), HasSubstr("step()")));
  });
}

TEST(HostOnlySynchronizerMisuse, StepInsteadOfWait) {
  on_ranks([](Communicator& communicator) {
    Training training{communicator};
    training.backward();
    training.optimizer.step();
    training.optimizer.zero_grad();
    EXPECT_THAT(message_of<UsageError>([&] { training.backward(); }),
                AllOf(HasSubstr("Call wait()"), HasSubstr("step()")));
  });
}

TEST(HostOnlySynchronizerMisuse, StepBeforeWaitOnOneRankWhileABucketIsLeft) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    Training training{communicator};
    const auto round = [&] {
      if (is_odd_one(communicator)) {
        training.backward_of_left();
        training.optimizer.step();
      } else {
        training.backward();
      }
      training.synchronizer.wait();
    };
    expect_told_of_one(communicator, round, {"'left' was stepped", "Call wait()", "step()"});
  });
}

TEST(HostOnlySynchronizerMisuse, StepBeforeWaitOnOneRankAfterAllBuckets) {
  on_fresh_ranks(1, kTenSeconds, [](Communicator& communicator) {
    Training training{communicator};
    training.backward();
    const auto end_of_round = [&] {
      if (is_odd_one(communicator)) training.optimizer.step();
      training.synchronizer.wait();
    };
    expect_told_of_one(communicator, end_of_round, {"was stepped", "Call wait()", "step()"});
  });
}

// What a handler of an error may call.
std::vector<std::function<void()>> all_calls(Training& training) {
  auto& synchronizer = training.synchronizer;
  return {[&] { synchronizer.zero_grad(); },
          [&] { training.backward_under_no_sync(); },
          [&] { training.backward(); },
          [&] { synchronizer.wait(); },
          [&] { synchronizer.set_samples(1); },
          [&] { synchronizer.join(); },
          [&] { synchronizer.broadcast_buffers(); }};
}

// One rank calls something else, which ends the communicator: an error handler that calls zero_grad() or starts another
// round gets the communicator's error again, not one that blames the caller.
TEST(SynchronizerMisuse, IsNotReportedAfterTheCommunicatorHasFailed) {
  on_fresh_ranks(2, kTenSeconds, [](Communicator& communicator) {
    Training training{communicator};
    std::string reason;
    if (is_odd_one(communicator)) {
      EXPECT_THAT(message_of<CommunicationError>([&] { communicator.barrier(); }), HasSubstr("different collectives"));
      training.synchronizer.zero_grad();  // no round has begun
      reason = message_of<CommunicationError>([&] { training.backward(); });
    } else {
      reason = message_of<CommunicationError>([&] {
        training.backward();
        training.synchronizer.wait();
      });
    }
    EXPECT_THAT(reason, HasSubstr("different collectives"));
    for (const auto& call : all_calls(training)) EXPECT_EQ(message_of<CommunicationError>(call), reason);
  });
}

// Fails in the first wait(), as if there were no memory for once.
class FailingFormat : public WireFormat {
 public:
  std::string name() const override { return "failing"; }
  bool may_overflow() const override { return false; }
  void plan(const std::vector<BucketView>& /*buckets*/, Communicator& /*communicator*/) override {}

  std::unique_ptr<Reduction> start(const BucketView& /*bucket*/, Communicator& /*communicator*/) override {
    return std::make_unique<FailingReduction>(has_failed_);
  }

 private:
  class FailingReduction : public Reduction {
   public:
    explicit FailingReduction(bool& has_failed) : has_failed_(has_failed) {}
    bool advance() override {
      if (!std::exchange(has_failed_, true)) throw std::runtime_error("no memory");
      return true;
    }

   private:
    bool& has_failed_;
  };

  bool has_failed_ = false;
};

TEST(SynchronizerMisuse, IsNotReportedAfterAWireFormatHasFailed) {
  detail::SingleCommunicator communicator{device()};
  Training training{communicator, {.wire_format = std::make_shared<FailingFormat>()}};
  training.backward();
  EXPECT_EQ(message_of<std::runtime_error>([&] { training.synchronizer.wait(); }), "no memory");
  for (const auto& call : all_calls(training)) EXPECT_EQ(message_of<std::runtime_error>(call), "no memory");
}

TEST(SynchronizerMisuse, FreezingOnOneRankOnly) {
  on_fresh_ranks(2, kTenSeconds, [](Communicator& communicator) {
    Training training{communicator};
    if (is_odd_one(communicator)) training.model.left.set_requires_grad(false);
    const auto round = [&] {
      training.backward();
      training.synchronizer.wait();
    };
    expect_told_of_one(communicator, round, {"'left'", "frozen"});
  });
}

}  // namespace
}  // namespace libtrain
