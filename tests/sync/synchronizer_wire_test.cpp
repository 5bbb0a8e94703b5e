// Lossy wire formats through a synchronizer, on ranks as threads and under mpirun.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/wire/half_precision.hpp>
#include <libtrain/sync/wire/power_sgd.hpp>

#include <tests/support/device.hpp>
#include <tests/support/expect_told.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>
#include <tests/sync/wire/hand_made_bucket.hpp>

namespace libtrain {
namespace {

using test::device;
using test::expect_told;
using test::expect_told_of_one;
using test::is_odd_one;
using test::is_within;
using test::kTenSeconds;
using test::mean_over_ranks;
using test::message_of;
using test::on_fresh_ranks;
using test::on_ranks;
using test::Pair;
using ::testing::HasSubstr;

constexpr std::int64_t kWireElements = 100;

// Of float16: the largest relative error of rounding, and the largest absolute one.
constexpr double kRelative = 0x1p-11;
constexpr double kAbsolute = 0x1p-25;

struct Weight : torch::nn::Module {
  at::Tensor weight = register_parameter("weight", torch::ones({kWireElements}, device()));

  /// Its gradient is `gradient`, float32 [kWireElements].
  at::Tensor loss(const at::Tensor& gradient) const { return (weight * gradient.to(device())).sum(); }
};

// No bucket is too small for it.
std::shared_ptr<WireFormat> float16(double predivide) {
  return std::make_shared<HalfPrecisionWireFormat>(
      HalfPrecisionOptions{.type = at::kHalf, .predivide = predivide, .min_elements = 0});
}

// float32 [kWireElements], of sizes from 50 down to where float16 has denormal numbers only.
at::Tensor gradient_in_round(int rank, int round) {
  const auto places = torch::arange(kWireElements, at::kDouble);
  const auto waves = places.add(static_cast<double>(kWireElements) * (10 * rank + round)).sin();
  return (waves * torch::pow(10.0, -places.remainder(8)) * 50).to(at::kFloat);
}

struct Mean {
  at::Tensor value;
  at::Tensor size;  ///< of the magnitudes
};

// In float64, of what float32 holds. Rank r counts r + 1 times where `weighted`.
Mean mean_of(int world_size, int round, bool weighted) {
  auto value = torch::zeros({kWireElements}, at::kDouble);
  auto size = torch::zeros({kWireElements}, at::kDouble);
  double total = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    const double samples = weighted ? rank + 1 : 1;
    const auto gradient = gradient_in_round(rank, round).to(at::kDouble);
    value += gradient * samples;
    size += gradient.abs() * samples;
    total += samples;
  }
  return {value / total, size / total};
}

TEST(SynchronizerWire, AveragesInFloat16WithinItsRounding) {
  on_ranks([](Communicator& communicator) {
    const int world_size = communicator.world_size();
    for (const double predivide : {1.0, 1.0 * world_size, 0.25, 3.0}) {
      for (const bool weighted : {false, true}) {
        Weight model;
        GradientSynchronizer synchronizer{
            model, communicator, {.non_finite = NonFinite::fatal, .wire_format = float16(predivide)}};
        for (int round = 0; round < 2; ++round) {
          if (weighted) synchronizer.set_samples(communicator.rank() + 1);
          model.loss(gradient_in_round(communicator.rank(), round)).backward();
          EXPECT_TRUE(synchronizer.wait());
          const auto mean = mean_of(world_size, round, weighted);
          // Each rank's gradient is rounded, then their average; the hundredth is for float32.
          const auto bound =
              (mean.size + mean.value.abs()) * (1.01 * kRelative) + 3 * kAbsolute * std::max(1.0, predivide);
          EXPECT_TRUE(is_within(model.weight.grad(), mean.value, bound)) << "by " << predivide << ", " << weighted;
          if (world_size > 1) {
            EXPECT_FALSE(is_within(model.weight.grad(), mean.value, 1e-4)) << "nothing has been rounded";
          }
          synchronizer.zero_grad();
        }
      }
    }
  });
}

// Gradients of all elements of a weight, on several ranks.
struct Case {
  double of_last;
  double of_others;
  int predivide_by;  ///< times the world size; 0 for not at all
  bool overflows;
};

// float16 ends at 65504. Ranks add up in float32, and what returns to them is the average; or, where they have divided
// before, the sum of the quotients. NCCL, and the fake GPU's library, add up in float16 and divide the sum.
constexpr Case kCases[] = {
    {100000, 0, 0, true},        // on its way out
    {100000, 0, 1, false},       // the quotients fit, and their sum is the average
    {60000, 60000, 0, false},    // the average fits; the sum does not have to, on the host
    {100000, 100000, 1, true},   // the sum of the quotients is the average, which does not fit
    {100000, 100000, 2, false},  // half of it does
};

bool adds_on_host(const Communicator& communicator) {
  return device().is_cpu() || communicator.backend().starts_with("staged");
}

double predivide_of(const Case& of, const Communicator& communicator) {
  return of.predivide_by == 0 ? 1.0 : 1.0 * of.predivide_by * communicator.world_size();
}

TEST(SynchronizerWire, SkipsExactlyTheRoundsThatFloat16CannotHold) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;  // nothing travels
    for (auto of : kCases) {
      of.overflows |= !adds_on_host(communicator) && of.predivide_by == 0;
      SCOPED_TRACE(text(of.of_last, " and ", of.of_others, ", predivide by ranks times ", of.predivide_by));
      Weight model;
      const auto format = float16(predivide_of(of, communicator));
      GradientSynchronizer synchronizer{model, communicator, {.non_finite = NonFinite::skipped, .wire_format = format}};
      const auto run_round = [&](double mine) {
        model.loss(torch::full({kWireElements}, mine)).backward();
        return synchronizer.wait();
      };
      EXPECT_EQ(run_round(is_odd_one(communicator) ? of.of_last : of.of_others), !of.overflows);
      EXPECT_EQ(model.weight.grad().defined(), !of.overflows);
      if (!of.overflows) {
        const int last = communicator.world_size() - 1;
        const double mean =
            mean_over_ranks(last + 1, [&](int rank) { return rank == last ? of.of_last : of.of_others; });
        EXPECT_TRUE(is_within(model.weight.grad(), torch::full({kWireElements}, mean), 2.02 * kRelative * mean));
      }
      synchronizer.zero_grad();
      EXPECT_TRUE(run_round(1));
      EXPECT_TRUE(is_within(model.weight.grad(), torch::ones({kWireElements}), 2.02 * kRelative));
    }
  });
}

TEST(SynchronizerWire, TellsAllRanksWhatHasOverflowed) {
  on_fresh_ranks(2, kTenSeconds, [](Communicator& communicator) {
    for (const auto& of : kCases) {
      if (!of.overflows) continue;
      Pair model;
      const double predivide = predivide_of(of, communicator);
      GradientSynchronizer synchronizer{
          model, communicator, {.non_finite = NonFinite::fatal, .wire_format = float16(predivide)}};
      const auto round = [&] {
        model.loss(is_odd_one(communicator) ? of.of_last : of.of_others, 1).backward();
        synchronizer.wait();
      };
      expect_told(communicator, round,
                  {"'left' overflowed in round 1", text("float16, predivide ", predivide), "NonFinite::skipped"});
      synchronizer.zero_grad();
      model.loss(4, 8).backward();
      EXPECT_TRUE(synchronizer.wait());
      EXPECT_TRUE(is_within(model.left.grad(), torch::full({4}, 4), 4 * 2.02 * kRelative));
    }
  });
}

// The first rank has nearly all samples, and its gradient counts nearly as often as there are ranks.
TEST(SynchronizerWire, AWeightMayOverflowWhereNoGradientDoes) {
  on_ranks([](Communicator& communicator) {
    const int world_size = communicator.world_size();
    if (world_size == 1) return;
    for (const double predivide : {1.0, 1.0 * world_size}) {
      Weight model;
      GradientSynchronizer synchronizer{
          model, communicator, {.non_finite = NonFinite::skipped, .wire_format = float16(predivide)}};
      synchronizer.set_samples(communicator.rank() == 0 ? 1000 : 1);
      model.loss(torch::full({kWireElements}, 60000.0)).backward();
      EXPECT_EQ(synchronizer.wait(), predivide > 1);
      if (predivide == 1) continue;
      EXPECT_TRUE(is_within(model.weight.grad(), torch::full({kWireElements}, 60000.0), 2.02 * kRelative * 60000));
    }
  });
}

TEST(SynchronizerWire, ReportsArriveWhateverDividesTheGradients) {
  for (const double predivide : {0x1p-20, 0x1p20}) {
    on_fresh_ranks(1, kTenSeconds, [&](Communicator& communicator) {
      Pair model;
      GradientSynchronizer synchronizer{model, communicator, {.wire_format = float16(predivide)}};
      const auto round = [&] {
        (is_odd_one(communicator) ? model.right.sum() : model.loss(1, 1)).backward();
        synchronizer.wait();
      };
      expect_told_of_one(communicator, round, {"'left'", "UnusedParameters::allowed"});
    });
  }
}

struct TwoMatrices : torch::nn::Module {
  at::Tensor first = register_parameter("first", torch::ones({16, 16}, device()));
  at::Tensor second = register_parameter("second", torch::ones({16, 16}, device()));
};

// A frozen layer's round of zeros leaves the power iteration without a direction: the first round after it may miss the
// average, and what it has missed comes with the second.
TEST(SynchronizerWire, PowerSgdSendsSoonWhatItHeldBackAfterUnfreezing) {
  on_ranks([](Communicator& communicator) {
    TwoMatrices model;
    const auto format = std::make_shared<PowerSgdWireFormat>(PowerSgdOptions{.rank = 1, .start_round = 0});
    GradientSynchronizer synchronizer{model, communicator, {.wire_format = format}};
    const auto gradient_of_first = [&](bool trained) {
      model.first.set_requires_grad(trained);
      ((model.first.sum() + model.second.sum()) * (communicator.rank() + 1)).backward();
      EXPECT_TRUE(synchronizer.wait());
      const auto gradient = trained ? model.first.grad().clone() : at::Tensor{};
      synchronizer.zero_grad();
      return gradient;
    };
    for (const bool trained : {true, true, false, false, true}) gradient_of_first(trained);
    const auto sum_of_two = gradient_of_first(true) + gradient_of_first(true);
    const double mean = mean_over_ranks(communicator.world_size(), [](int rank) { return rank + 1; });
    EXPECT_TRUE(is_within(sum_of_two, torch::full({16, 16}, 2 * mean), 1e-3 * mean));
    EXPECT_TRUE(is_within(gradient_of_first(true), torch::full({16, 16}, mean), 1e-3 * mean));
  });
}

TEST(SynchronizerWire, AFormatServesOneSynchronizerAtATime) {
  on_ranks([](Communicator& communicator) {
    const auto format = std::make_shared<HalfPrecisionWireFormat>();
    torch::nn::Linear layer{torch::nn::LinearOptions(2, 2)};
    layer->to(device());
    {
      const GradientSynchronizer first{*layer, communicator, {.wire_format = format}};
      EXPECT_THAT(message_of<UsageError>([&] { GradientSynchronizer(*layer, communicator, {.wire_format = format}); }),
                  HasSubstr("The wire format 'bfloat16' is given to a second synchronizer"));
    }
    EXPECT_NO_THROW(GradientSynchronizer(*layer, communicator, {.wire_format = format}));
  });
}

}  // namespace
}  // namespace libtrain
