// Layers that are frozen and unfrozen while other features are in use, on ranks as threads and under mpirun.

#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/wire/half_precision.hpp>
#include <libtrain/sync/wire/power_sgd.hpp>

#include <tests/support/device.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

using test::device;
using test::expect_all;
using test::mean_over_ranks;
using test::message_of;
using test::on_device;
using test::on_ranks;
using test::Pair;
using ::testing::HasSubstr;

constexpr double kNanGradient = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kLetters = "abcd";

// What is trained, round by round: one layer is frozen, two more while it comes back, all give way to the others, and
// those come back, too.
constexpr std::string_view kTrained[] = {"abcd", "abcd", "acd", "acd", "bd", "ac", "ac", "abcd", "abcd", "abcd"};
constexpr int kRounds = static_cast<int>(std::size(kTrained));

bool is_trained(char letter, int round) {
  return kTrained[round].find(letter) != std::string_view::npos;
}

// Parameters a, b, c and d, float32 [16, 16], whose gradients have equal elements: PowerSGD loses nothing of them.
struct Matrices : torch::nn::Module {
  Matrices() {
    for (const char letter : kLetters) {
      by_letter.push_back(register_parameter(std::string{letter}, torch::ones({16, 16}, device())));
    }
  }

  at::Tensor& operator[](char letter) { return by_letter[static_cast<std::size_t>(letter - 'a')]; }

  std::vector<at::Tensor> by_letter;
};

// How the synchronizer learns what backward() will not reach.
enum class Telling { nothing, find_unused, declare_unused };
constexpr Telling kAllWays[] = {Telling::nothing, Telling::find_unused, Telling::declare_unused};

enum class Zeroing { of_synchronizer, of_optimizer };

// What else is in use.
struct Features {
  std::function<std::shared_ptr<WireFormat>()> make_wire_format = {};
  double tolerance = 1e-6;  ///< relative, of what travels in it
  BucketLimits buckets = {.bucket_bytes = 2048, .first_bucket_bytes = 1024};
  std::vector<std::vector<std::string>> plan = {};
  bool unused = false;  ///< odd ranks leave c out, and now and then all ranks d
  Telling telling = Telling::nothing;
  bool uneven = false;      ///< rank r has r + 1 samples
  bool joins = false;       ///< rank r has no data in the last 2 r rounds
  bool non_finite = false;  ///< rank 0 has NaN in some rounds, which are skipped
  Overlap overlap = Overlap::backward;
  Zeroing zeroing = Zeroing::of_synchronizer;
};

// What every rank does in every round.
class Course {
 public:
  Course(const Features& features, int world_size) : features_(features), world_size_(world_size) {}

  bool trains(int rank, int round) const { return !features_.joins || rank == 0 || round < kRounds - 2 * rank; }
  bool weighted() const { return features_.uneven || features_.joins; }
  std::int64_t samples(int rank) const { return features_.uneven ? rank + 1 : 1; }

  bool uses(int rank, char letter, int round) const {
    const bool left_out_by_all = letter == 'd' && (round == 3 || round == 8);
    const bool left_out = left_out_by_all || (letter == 'c' && rank % 2 == 1);
    return is_trained(letter, round) && !(features_.unused && left_out);
  }

  /// The letter whose gradient is NaN: of a layer that has always been there, or has just been unfrozen.
  std::optional<char> poisoned(int round) const {
    if (!features_.non_finite) return {};
    if (round == 1) return 'b';
    if (round == 2) return 'c';
    if (world_size_ == 1) return {};  // which has a test of its own
    if (round == 5) return 'a';
    if (round == 7) return 'd';
    return {};
  }

  double coefficient(int rank, char letter, int round) const {
    return rank == 0 && poisoned(round) == letter ? kNanGradient : (rank + 1) * (letter - 'a' + 1);
  }

  /// The average, in every element; none where the gradient is to be undefined.
  std::optional<double> gradient(char letter, int round) const {
    if (poisoned(round)) return {};
    double sum = 0;
    double samples_of_all = 0;
    bool used = false;
    for (int rank = 0; rank < world_size_; ++rank) {
      if (!trains(rank, round)) continue;
      samples_of_all += static_cast<double>(samples(rank));
      if (!uses(rank, letter, round)) continue;
      used = true;
      sum += static_cast<double>(samples(rank)) * coefficient(rank, letter, round);
    }
    return used ? std::optional{sum / samples_of_all} : std::nullopt;
  }

 private:
  const Features features_;
  const int world_size_;
};

SynchronizerOptions options_of(const Features& features) {
  return {.buckets = features.buckets,
          .plan = features.plan,
          .unused = features.unused ? UnusedParameters::allowed : UnusedParameters::refused,
          .non_finite = features.non_finite ? NonFinite::skipped : NonFinite::unchecked,
          .overlap = features.overlap,
          .wire_format = features.make_wire_format ? features.make_wire_format() : nullptr};
}

// One rank's part in the course.
class Rank {
 public:
  Rank(const Features& features, Communicator& communicator)
      : features_(features),
        course_(features, communicator.world_size()),
        rank_(communicator.rank()),
        synchronizer_(model_, communicator, options_of(features)) {}

  void run() {
    for (int round = 0; round < kRounds; ++round) {
      SCOPED_TRACE(text("round ", round, ", unused parameters told in way ", static_cast<int>(features_.telling)));
      for (const char letter : kLetters) model_[letter].set_requires_grad(is_trained(letter, round));
      const bool skipped = course_.poisoned(round).has_value();
      if (course_.trains(rank_, round)) {
        run_backward(round);
        EXPECT_EQ(synchronizer_.wait(), !skipped);
      } else {
        EXPECT_TRUE(synchronizer_.join());
      }
      EXPECT_EQ(synchronizer_.skipped(), skipped);
      check_gradients(round);
      zero_gradients();
    }
    if (features_.joins) {
      EXPECT_FALSE(synchronizer_.join());
    }
  }

 private:
  void run_backward(int round) {
    if (course_.weighted()) synchronizer_.set_samples(course_.samples(rank_));
    auto loss = torch::zeros({1}, device());
    std::vector<std::string> unused;
    for (const char letter : kLetters) {
      if (course_.uses(rank_, letter, round)) {
        loss = loss + model_[letter].sum() * course_.coefficient(rank_, letter, round);
      } else {
        unused.push_back(std::string{letter});
      }
    }
    if (features_.telling == Telling::find_unused) synchronizer_.find_unused({loss});
    if (features_.telling == Telling::declare_unused) synchronizer_.declare_unused(unused);
    loss.backward();
  }

  void check_gradients(int round) {
    for (const char letter : kLetters) {
      const auto wanted = course_.gradient(letter, round);
      const auto& gradient = model_[letter].grad();
      EXPECT_EQ(gradient.defined(), wanted.has_value()) << letter;
      if (!gradient.defined() || !wanted) continue;
      const double deviation = (gradient.to(at::kDouble) - *wanted).abs().max().item<double>();
      EXPECT_LE(deviation, features_.tolerance * *wanted) << letter << " is to be " << *wanted;
    }
  }

  void zero_gradients() {
    if (features_.zeroing == Zeroing::of_synchronizer) return synchronizer_.zero_grad();
    for (const char letter : kLetters) model_[letter].mutable_grad().reset();
  }

  const Features features_;
  const Course course_;
  const int rank_;
  Matrices model_;
  GradientSynchronizer synchronizer_;
};

void expect_right_rounds(const Features& features) {
  on_ranks([&](Communicator& communicator) { Rank{features, communicator}.run(); });
}

Features over_float16(Features features = {}) {
  features.make_wire_format = [] {
    return std::make_shared<HalfPrecisionWireFormat>(HalfPrecisionOptions{.type = at::kHalf, .min_elements = 0});
  };
  features.tolerance = 1e-3;  // each gradient is rounded, then the average: 2^-11 twice
  return features;
}

// Every round from a new start: after one of zeros a warm one would first have to find its direction again.
Features over_power_sgd(Features features = {}) {
  features.make_wire_format = [] {
    return std::make_shared<PowerSgdWireFormat>(PowerSgdOptions{.rank = 1, .start_round = 0, .warm_start = false});
  };
  features.tolerance = 1e-4;
  return features;
}

// Every gradient is a bucket of its own, and not copied.
Features where_autograd_leaves_them(Features features = {}) {
  features.buckets = {.alone_bytes = 1};
  return features;
}

TEST(SynchronizerFreezing, GoesWithUnusedParameters) {
  for (const auto telling : kAllWays) {
    expect_right_rounds({.unused = true, .telling = telling});
    expect_right_rounds({.unused = true, .telling = telling, .zeroing = Zeroing::of_optimizer});
  }
}

TEST(SynchronizerFreezing, GoesWithSkippedRounds) {
  expect_right_rounds({.non_finite = true});
  expect_right_rounds({.non_finite = true, .zeroing = Zeroing::of_optimizer});
}

TEST(SynchronizerFreezing, GoesWithWireFormats) {
  expect_right_rounds(over_float16());
  expect_right_rounds(over_power_sgd());
}

TEST(SynchronizerFreezing, GoesWithUnevenBatches) {
  expect_right_rounds({.uneven = true});
}

TEST(SynchronizerFreezing, GoesWithRanksThatJoin) {
  expect_right_rounds({.joins = true});
  expect_right_rounds({.joins = true, .overlap = Overlap::none, .zeroing = Zeroing::of_optimizer});
}

TEST(SynchronizerFreezing, GoesWithAGivenPlan) {
  expect_right_rounds({.plan = {{"a", "d"}, {"c"}, {"b"}}});
}

TEST(SynchronizerFreezing, GoesWithAllOfThemAtOnce) {
  for (const auto telling : kAllWays) {
    const auto overlap = telling == Telling::nothing ? Overlap::none : Overlap::backward;
    const Features all{
        .unused = true, .telling = telling, .uneven = true, .joins = true, .non_finite = true, .overlap = overlap};
    expect_right_rounds(all);
    expect_right_rounds(where_autograd_leaves_them(all));
    expect_right_rounds(over_float16(all));
    expect_right_rounds(over_power_sgd(all));
  }
}

TEST(SynchronizerFreezing, AGivenPlanNeedNotNameWhatIsUnfrozenLater) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    model.left.set_requires_grad(false);
    GradientSynchronizer synchronizer{model, communicator, {.plan = {{"right"}}}};
    for (int round = 0; round < 4; ++round) {
      if (round == 1) model.left.set_requires_grad(true);
      model.loss(communicator.rank() + 1, 2).backward();
      EXPECT_TRUE(synchronizer.wait());
      expect_all(model.right.grad(), 2, "right");
      if (round > 0) {
        expect_all(model.left.grad(), mean_over_ranks(communicator.world_size(), [](int rank) { return rank + 1; }));
      }
      synchronizer.zero_grad();
    }
  });
}

// The new plan has it already when its first round opens.
// A device has no tune().
TEST(HostOnlySynchronizerFreezing, ALayerThatIsUnfrozenBeforeTuningIsSeen) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    model.left.set_requires_grad(false);
    GradientSynchronizer synchronizer{model, communicator};
    model.loss(0, 1).backward();
    synchronizer.wait();
    synchronizer.zero_grad();
    model.left.set_requires_grad(true);
    synchronizer.tune();
    for (int round = 0; round < 2; ++round) {
      model.loss(communicator.rank() + 1, 1).backward();
      synchronizer.wait();
      expect_all(model.left.grad(), test::mean_rank_plus_one(communicator), "left");
      synchronizer.zero_grad();
    }
  });
}

// Counts the gradients that reach a parameter.
class CountingHook : public torch::autograd::FunctionPreHook {
 public:
  explicit CountingHook(int& count) : count_(count) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    ++count_;
    return gradients;
  }

 private:
  int& count_;
};

// The round's first hook is that of the frozen layer, and uses the new plan. It must not be removed while it runs:
// autograd iterates over it and the hook after it.
// With tune(), which a device does not have.
TEST(HostOnlySynchronizerFreezing, ALayerMayBeFrozenBetweenForwardAndBackwardWhenThePlanChanges) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    int reached = 0;
    GradientSynchronizer synchronizer{model, communicator, {.buckets = {16, 16}}};
    torch::autograd::impl::grad_accumulator(model.right)->add_pre_hook(std::make_unique<CountingHook>(reached));
    model.loss(1, 1).backward();
    synchronizer.wait();
    for (auto& parameter : model.parameters()) parameter.mutable_grad().reset();  // as an optimizer does
    synchronizer.tune();
    const auto loss = model.loss(communicator.rank() + 1, 1);
    model.right.set_requires_grad(false);
    loss.backward();
    EXPECT_TRUE(synchronizer.wait());
    EXPECT_EQ(reached, 2);
    expect_all(model.left.grad(), test::mean_rank_plus_one(communicator), "left");
    EXPECT_FALSE(model.right.grad().defined());
    synchronizer.zero_grad();
    (model.left.sum() * 3).backward();
    EXPECT_TRUE(synchronizer.wait());
    expect_all(model.left.grad(), 3, "left");
  });
}

TEST(SynchronizerFreezing, ALayerMayBeConvertedWhileItIsFrozen) {
  on_ranks([](Communicator& communicator) {
    auto model = on_device(torch::nn::Sequential{torch::nn::Linear(2, 2), torch::nn::Linear(2, 2)});
    auto& last = model[1]->as<torch::nn::Linear>()->weight;
    model[1]->as<torch::nn::Linear>()->bias.set_requires_grad(false);
    last.set_requires_grad(false);
    GradientSynchronizer synchronizer{model, communicator};
    model[1]->to(at::kDouble);
    model[1]->as<torch::nn::Linear>()->weight.set_requires_grad(true);
    for (int round = 0; round < 2; ++round) {
      const auto features = model[0]->as<torch::nn::Linear>()->forward(torch::ones({1, 2}, device()));
      model[1]->as<torch::nn::Linear>()->forward(features.to(at::kDouble)).sum().backward();
      synchronizer.wait();
      EXPECT_EQ(model[1]->as<torch::nn::Linear>()->weight.grad().scalar_type(), at::kDouble);
      synchronizer.zero_grad();
    }
  });
}

TEST(SynchronizerFreezing, FreezingEverythingIsRefusedAndMayBeTakenBack) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    GradientSynchronizer synchronizer{model, communicator};
    const auto round = [&] {
      model.loss(communicator.rank() + 1, 2).backward();
      EXPECT_TRUE(synchronizer.wait());
      expect_all(model.left.grad(), mean_over_ranks(communicator.world_size(), [](int rank) { return rank + 1; }));
      synchronizer.zero_grad();
    };
    round();
    for (auto& parameter : model.parameters()) parameter.set_requires_grad(false);
    EXPECT_THAT(message_of<UsageError>([&] { synchronizer.wait(); }),
                HasSubstr("no parameter that requires a gradient"));
    for (auto& parameter : model.parameters()) parameter.set_requires_grad(true);
    round();
  });
}

// The first round with `left` of a rank that is alone.
bool unfreeze_left(Pair& model, GradientSynchronizer& synchronizer, double of_left) {
  model.left.set_requires_grad(true);
  model.loss(of_left, 2).backward();
  return synchronizer.wait();
}

TEST(SynchronizerFreezing, AGroupOfOneSkipsNanOfALayerThatWasJustUnfrozen) {
  detail::SingleCommunicator communicator{device()};
  Pair model;
  model.left.set_requires_grad(false);
  GradientSynchronizer synchronizer{model, communicator, {.non_finite = NonFinite::skipped}};
  EXPECT_FALSE(unfreeze_left(model, synchronizer, kNanGradient));
  EXPECT_FALSE(model.left.grad().defined());
  EXPECT_FALSE(model.right.grad().defined());
}

TEST(SynchronizerFreezing, AGroupOfOneWithoutSamplesZeroesALayerThatWasJustUnfrozen) {
  detail::SingleCommunicator communicator{device()};
  Pair model;
  model.left.set_requires_grad(false);
  GradientSynchronizer synchronizer{model, communicator};
  EXPECT_EQ(synchronizer.set_samples(0), 0);
  EXPECT_TRUE(unfreeze_left(model, synchronizer, kNanGradient));
  expect_all(model.left.grad(), 0, "left");
  expect_all(model.right.grad(), 0, "right");
}

}  // namespace
}  // namespace libtrain
