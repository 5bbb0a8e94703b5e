// Training in any order that a program could choose, on ranks as threads and under mpirun: models, buckets, orders of
// gradients, delays, accumulation, unused parameters, samples and NaN are drawn by chance, and every gradient is known.

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/text.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/fresh_seed.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/sync/random_schedule.hpp>

namespace libtrain {
namespace {

using test::Features;
using test::on_device;
using test::on_ranks;
using test::Schedule;
using test::Zeroing;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::uint64_t kSchedules = 100;           // of each kind, over groups of 1 to 4 ranks
constexpr std::uint64_t kSchedulesOfProcesses = 4;  // which are slower, and run the same code
constexpr int kRounds = 4;
constexpr double kRate = 0.25;

/// The identity, whose gradient takes its time. Delays only shuffle threads; nothing relies on them.
struct Delay : torch::autograd::Function<Delay> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, std::int64_t microseconds) {
    context->saved_data["microseconds"] = microseconds;
    return input.clone();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto delay = std::chrono::microseconds(context->saved_data["microseconds"].toInt());
    const auto end = std::chrono::steady_clock::now() + delay;
    while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return {gradients[0], at::Tensor()};
  }
};

/// One rank's part in a schedule.
class Rank {
 public:
  Rank(const Schedule& schedule, Communicator& communicator)
      : schedule_(schedule),
        rank_(communicator.rank()),
        tensors_(register_tensors()),
        synchronizer_(model_, communicator, schedule.options()),
        optimizer_(tensors_, torch::optim::SGDOptions(kRate)),
        wanted_(tensors_.size(), 1.0) {}

  void run() {
    for (int round = 0; round < kRounds; ++round) {
      run_passes(round);
      const bool skipped = schedule_.skipped(round);
      EXPECT_EQ(synchronizer_.wait(), !skipped);
      check_gradients(round, skipped);
      optimizer_.step();
      zero_gradients();
    }
    for (std::size_t index = 0; index < tensors_.size(); ++index) expect_all(tensors_[index], wanted_[index]);
  }

 private:
  // Ranks start with weights of their own: rank 0's ones must win.
  std::vector<at::Tensor> register_tensors() {
    std::vector<at::Tensor> tensors;
    for (int parameter = 0; parameter < schedule_.parameters(); ++parameter) {
      const auto weight =
          torch::full({schedule_.elements(parameter)}, rank_ + 1, on_device(schedule_.dtype(parameter)));
      tensors.push_back(model_.register_parameter(text("p", parameter), weight));
    }
    return tensors;
  }

  void run_passes(int round) {
    const int last = schedule_.passes(rank_, round) - 1;
    const bool samples_first = schedule_.samples_first(rank_, round);
    // Passes that are not under no_sync() begin the round.
    const bool guarded = schedule_.guarded(rank_, round);
    if (samples_first || !guarded) tell_samples(round);
    for (int pass = 0; pass < last; ++pass) {
      std::optional<GradientSynchronizer::NoSync> guard;
      if (guarded) guard.emplace(synchronizer_.no_sync());
      loss_of(round, pass).backward();
    }
    if (!samples_first && guarded) tell_samples(round);
    const auto loss = loss_of(round, last);
    if (schedule_.finds_unused(rank_, round)) synchronizer_.find_unused({loss});
    loss.backward();
  }

  void tell_samples(int round) {
    if (!schedule_.weighted(round)) return;
    EXPECT_EQ(synchronizer_.set_samples(schedule_.samples(rank_, round)), schedule_.samples_of_all(round));
  }

  at::Tensor loss_of(int round, int pass) {
    auto loss = torch::zeros({1}, on_device(at::kDouble));
    for (const int parameter : schedule_.order(rank_, round, pass)) {
      if (!schedule_.used(rank_, round, pass, parameter)) continue;
      const auto& tensor = tensors_[static_cast<std::size_t>(parameter)];
      const auto term = tensor.sum() * schedule_.coefficient(rank_, round, pass, parameter);
      loss = loss + Delay::apply(term, schedule_.delay_us(rank_, round, pass, parameter)).to(at::kDouble);
    }
    return loss;
  }

  void check_gradients(int round, bool skipped) {
    for (int parameter = 0; parameter < schedule_.parameters(); ++parameter) {
      SCOPED_TRACE(text("round ", round, ", parameter ", parameter));
      const auto index = static_cast<std::size_t>(parameter);
      const auto& gradient = tensors_[index].grad();
      const auto expectation = schedule_.expectation(round, parameter);
      if (skipped) {
        EXPECT_FALSE(gradient.defined());
      } else if (expectation.defined && expectation.certain) {
        ASSERT_TRUE(gradient.defined());
        expect_all(gradient, expectation.value);
        wanted_[index] -= kRate * expectation.value;
      } else if (gradient.defined()) {
        EXPECT_TRUE(!expectation.certain || schedule_.zeroing() == Zeroing::to_zero);
        expect_all(gradient, 0);
      }
    }
  }

  void zero_gradients() {
    if (schedule_.zeroing() == Zeroing::of_synchronizer) {
      synchronizer_.zero_grad();
    } else {
      optimizer_.zero_grad(schedule_.zeroing() == Zeroing::to_none);
    }
  }

  static void expect_all(const at::Tensor& tensor, double value) {
    const auto numbers = tensor.detach().cpu().to(at::kDouble);
    EXPECT_TRUE(torch::allclose(numbers, torch::full_like(numbers, value), 1e-5, 1e-5))
        << numbers << " and not " << value;
  }

  const Schedule& schedule_;
  const int rank_;
  torch::nn::Module model_{"model"};
  std::vector<at::Tensor> tensors_;
  GradientSynchronizer synchronizer_;
  torch::optim::SGD optimizer_;
  std::vector<double> wanted_;  // the weights
};

void run_schedule(std::uint64_t seed, Features features, Communicator& communicator) {
  SCOPED_TRACE(text(test::kSeedVariable, "=", seed, " on ", communicator.world_size(), " ranks"));
  try {
    const Schedule schedule{seed, features, communicator.world_size()};
    Rank{schedule, communicator}.run();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();  // with the seed, which the exception does not know
    throw;
  }
}

// Other ones in each run. The seed of a schedule that failed makes it the first one, in a group of as many processes or
// threads.
void run_schedules(Features features) {
  const auto first_seed = test::fresh_seed();
  on_ranks([&](Communicator& communicator) {
    const auto seed_of_rank_0 = std::stoull(communicator.broadcast_bytes(std::to_string(first_seed), 0));
    const auto schedules = communicator.backend() == "threads" ? kSchedules / 4 : kSchedulesOfProcesses;
    for (std::uint64_t index = 0; index < schedules; ++index) {
      run_schedule(seed_of_rank_0 + index, features, communicator);
    }
  });
}

TEST(RandomOrders, GiveRightGradients) {
  run_schedules({});
}

TEST(RandomAccumulation, GivesRightGradients) {
  run_schedules({.accumulation = true});
}

TEST(RandomUnusedParameters, GiveRightGradients) {
  run_schedules({.unused = true});
}

TEST(RandomSamples, GiveRightGradients) {
  run_schedules({.accumulation = true, .uneven = true});
}

TEST(RandomEverything, GivesRightGradients) {
  run_schedules({.accumulation = true, .unused = true, .uneven = true, .non_finite = true});
}

}  // namespace
}  // namespace libtrain
