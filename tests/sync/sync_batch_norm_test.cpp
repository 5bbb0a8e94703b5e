// SyncBatchNorm against LibTorch's batch norm over all ranks' samples, on ranks as threads and under mpirun.

#include <libtrain/sync/sync_batch_norm.hpp>

#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <libtrain/base/error.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

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
using Counts = std::vector<std::int64_t>;

constexpr std::int64_t kChannels = 3;

// Numbers about `mean` that depend on nothing but their position, on the host.
at::Tensor wave(at::IntArrayRef shape, double speed, double mean = 0) {
  return torch::arange(c10::multiply_integers(shape), at::kDouble).mul(speed).sin().view(shape).add(mean);
}

std::vector<std::int64_t> shape_of(std::int64_t samples, const std::vector<std::int64_t>& tail) {
  std::vector<std::int64_t> shape{samples, kChannels};
  shape.insert(shape.end(), tail.begin(), tail.end());
  return shape;
}

// Samples of each rank.
Counts different(const Communicator& communicator) {
  Counts counts(static_cast<std::size_t>(communicator.world_size()));
  std::iota(counts.begin(), counts.end(), 2);
  return counts;
}

Counts none_on_the_last(const Communicator& communicator) {
  Counts counts(static_cast<std::size_t>(communicator.world_size()), 2);
  if (counts.size() > 1) counts.back() = 0;
  return counts;
}

std::int64_t total_of(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::int64_t samples_here(const Counts& counts, const Communicator& communicator) {
  return counts[static_cast<std::size_t>(communicator.rank())];
}

// This rank's samples.
at::Tensor part_of(const at::Tensor& whole, const Counts& counts, const Communicator& communicator) {
  const auto first = std::accumulate(counts.begin(), counts.begin() + communicator.rank(), std::int64_t{0});
  return whole.to(device()).narrow(0, first, samples_here(counts, communicator));
}

struct Outcome {
  at::Tensor output, input_gradient, weight_gradient, bias_gradient, running_mean, running_var;
};

// One step of training with the sum of the outputs times `slope` for a loss, on the device of the input.
template <typename Norm>
Outcome run(Norm norm, at::ScalarType type, const at::Tensor& input, const at::Tensor& slope) {
  norm->to(input.device(), type);
  {
    const torch::NoGradGuard no_grad;
    norm->weight.copy_(wave({kChannels}, 1, 1.5));
    norm->bias.copy_(wave({kChannels}, 2));
  }
  const auto x = input.clone().requires_grad_();
  const auto y = norm->forward(x);
  (y * slope).sum().backward();
  return {y.detach(), x.grad(), norm->weight.grad(), norm->bias.grad(), norm->running_mean, norm->running_var};
}

// The reference: plain LibTorch in float64 on the host.
Outcome run_alone(const at::Tensor& input, const at::Tensor& slope) {
  const auto x = input.to(at::kDouble);
  const auto dy = slope.to(at::kDouble);
  if (input.dim() == 4) return run(torch::nn::BatchNorm2d(kChannels), at::kDouble, x, dy);
  if (input.dim() == 5) return run(torch::nn::BatchNorm3d(kChannels), at::kDouble, x, dy);
  return run(torch::nn::BatchNorm1d(kChannels), at::kDouble, x, dy);
}

void expect_near(const at::Tensor& actual, const at::Tensor& wanted, double tolerance, const char* what) {
  ASSERT_EQ(actual.sizes(), wanted.sizes()) << what;
  if (wanted.numel() == 0) return;
  const auto expected = wanted.cpu().to(at::kDouble);
  EXPECT_LE((actual.cpu().to(at::kDouble) - expected).abs().max().item<double>(),
            tolerance * (1 + expected.abs().max().item<double>()))
      << what;
}

at::Tensor sum_over_ranks(const at::Tensor& tensor, Communicator& communicator) {
  const auto result = tensor.clone();
  communicator.all_reduce(result).wait();
  return result;
}

SyncBatchNorm make_layer(Communicator& communicator) {
  return on_device(SyncBatchNorm(kChannels, communicator.split(0, communicator.rank())));
}

void expect_parity(Communicator& communicator, const Counts& counts, const at::Tensor& input, double tolerance,
                   double statistics_tolerance) {
  const auto slope = wave(input.sizes(), 1.3).to(input.scalar_type());
  const auto wanted = run_alone(input, slope);
  const auto type = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto mine =
      run(make_layer(communicator), type, part_of(input, counts, communicator), part_of(slope, counts, communicator));
  EXPECT_EQ(mine.output.scalar_type(), input.scalar_type());
  expect_near(mine.output, part_of(wanted.output, counts, communicator), tolerance, "output");
  expect_near(mine.input_gradient, part_of(wanted.input_gradient, counts, communicator), tolerance, "input gradient");
  expect_near(sum_over_ranks(mine.weight_gradient, communicator), wanted.weight_gradient, tolerance, "weight");
  expect_near(sum_over_ranks(mine.bias_gradient, communicator), wanted.bias_gradient, tolerance, "bias");
  expect_near(mine.running_mean, wanted.running_mean, statistics_tolerance, "running mean");
  expect_near(mine.running_var, wanted.running_var, statistics_tolerance, "running variance");
}

TEST(SyncBatchNorm, IsBatchNormOverAllRanksSamples) {
  on_ranks([](Communicator& communicator) {
    for (const auto& tail : std::vector<std::vector<std::int64_t>>{{}, {5}, {3, 4}, {2, 3, 2}}) {
      for (const auto& counts : {different(communicator), none_on_the_last(communicator)}) {
        const auto input = wave(shape_of(total_of(counts), tail), 0.7, 0.4);
        expect_parity(communicator, counts, input, 1e-10, 1e-10);
        expect_parity(communicator, counts, input.to(at::kFloat), 1e-4, 1e-5);
      }
    }
  });
}

// A float32 sum of squares would lose the variance: the squares are a million times as large.
TEST(SyncBatchNorm, KeepsThePrecisionOfTheVarianceBesideALargeMean) {
  on_ranks([](Communicator& communicator) {
    const auto counts = different(communicator);
    const auto input = wave(shape_of(total_of(counts), {4, 4}), 0.7, 1000).to(at::kFloat);
    expect_parity(communicator, counts, input, 2e-3, 1e-4);
  });
}

TEST(SyncBatchNorm, TakesStatisticsOf16BitInputInFloat32) {
  on_ranks([](Communicator& communicator) {
    for (const auto type : {at::kHalf, at::kBFloat16}) {
      const auto counts = none_on_the_last(communicator);
      const auto input = wave(shape_of(total_of(counts), {4, 4}), 0.7, 0.4).to(type);
      expect_parity(communicator, counts, input, 3e-2, 1e-4);
    }
  });
}

TEST(SyncBatchNorm, KeepsChannelsLast) {
  on_ranks([](Communicator& communicator) {
    const auto counts = different(communicator);
    const auto input = wave(shape_of(total_of(counts), {4, 5}), 0.7).contiguous(at::MemoryFormat::ChannelsLast);
    expect_parity(communicator, counts, input, 1e-10, 1e-10);
    auto layer = make_layer(communicator);
    layer->to(at::kDouble);
    const auto output = layer->forward(part_of(input, counts, communicator));
    EXPECT_TRUE(output.is_contiguous(at::MemoryFormat::ChannelsLast));
  });
}

TEST(SyncBatchNorm, TakesInputThatIsNotContiguous) {
  on_ranks([](Communicator& communicator) {
    const auto counts = different(communicator);
    const auto input = wave({4, kChannels, total_of(counts)}, 0.7).transpose(0, 2);
    expect_parity(communicator, counts, input, 1e-10, 1e-10);
  });
}

TEST(SyncBatchNorm, EvaluatesAsBatchNormDoesAndSendsNothing) {
  on_ranks([](Communicator& communicator) {
    auto layer = make_layer(communicator);
    auto plain = on_device(torch::nn::BatchNorm2d{kChannels});
    for (auto& mean : {layer->running_mean, plain->running_mean}) mean.copy_(wave({kChannels}, 1));
    layer->eval();
    plain->eval();
    const auto input = wave(shape_of(2, {3, 3}), 0.7).to(device(), at::kFloat);
    if (communicator.rank() == 0) {
      EXPECT_TRUE(torch::equal(layer->forward(input).cpu(), plain->forward(input).cpu()));
    }
    communicator.barrier();
    EXPECT_EQ(layer->num_batches_tracked.item<std::int64_t>(), 0);
  });
}

TEST(SyncBatchNorm, AveragesAllBatchesWithoutAMomentum) {
  on_ranks([](Communicator& communicator) {
    const auto options = torch::nn::BatchNormOptions(kChannels).momentum(std::nullopt).affine(false);
    SyncBatchNorm layer{options, communicator.split(0, communicator.rank())};
    layer->to(device(), at::kDouble);
    EXPECT_FALSE(layer->weight.defined());
    const auto counts = different(communicator);
    auto mean = torch::zeros({kChannels}, at::kDouble);
    if (communicator.world_size() > 1)
      layer->forward(torch::zeros({0, kChannels}, on_device(at::kDouble)));  // does not count
    for (const double speed : {0.3, 0.7}) {
      const auto input = wave(shape_of(total_of(counts), {}), speed, speed);
      layer->forward(part_of(input, counts, communicator));
      mean += input.mean(0) / 2;
    }
    expect_near(layer->running_mean, mean, 1e-12, "running mean");
  });
}

TEST(SyncBatchNorm, RefusesOneValueOnAllRanks) {
  on_ranks([](Communicator& communicator) {
    auto layer = make_layer(communicator);
    try {
      layer->forward(torch::ones({communicator.rank() == 0 ? 1 : 0, kChannels}, device()));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("Expected more than 1 value per channel"));
      EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
    }
    // The layer can still be used.
    EXPECT_EQ(layer->forward(torch::ones({2, kChannels}, device())).size(0), 2);
  });
}

TEST(SyncBatchNorm, LetsNoRankHaveSamples) {
  on_ranks([](Communicator& communicator) {
    auto layer = make_layer(communicator);
    const auto input = torch::ones({0, kChannels, 2, 2}, device()).requires_grad_();
    const auto output = layer->forward(input);
    output.sum().backward();
    EXPECT_EQ(output.sizes(), input.sizes());
    EXPECT_EQ(input.grad().sizes(), input.sizes());
    EXPECT_EQ(layer->weight.grad().abs().sum().item<float>(), 0.f);
    EXPECT_EQ(layer->running_mean.abs().sum().item<float>(), 0.f);
    EXPECT_EQ(layer->running_var.sum().item<float>(), 3.f);
  });
}

// The loss of all samples is their mean. Ranks take the mean over their own, and gradients are averaged by sample.
TEST(SyncBatchNorm, WeighsRanksByTheirSamplesWhereGradientsAre) {
  on_ranks([](Communicator& communicator) {
    const auto counts = different(communicator);
    const auto samples = static_cast<double>(samples_here(counts, communicator));
    const auto total = static_cast<double>(total_of(counts));
    const auto input = wave(shape_of(total_of(counts), {4}), 0.7);
    const auto slope = wave(input.sizes(), 1.3);
    const auto wanted = run_alone(input, slope / total);
    auto layer = make_layer(communicator);
    layer->set_gradient_weight(samples);
    const auto mine =
        run(layer, at::kDouble, part_of(input, counts, communicator), part_of(slope, counts, communicator) / samples);
    expect_near(mine.input_gradient * (samples / total), part_of(wanted.input_gradient, counts, communicator), 1e-10,
                "input gradient");
    expect_near(sum_over_ranks(mine.weight_gradient * (samples / total), communicator), wanted.weight_gradient, 1e-10,
                "weight");
    EXPECT_THAT(message_of<UsageError>([&] { layer->set_gradient_weight(-1); }), HasSubstr("-1"));
    EXPECT_THROW(layer->set_gradient_weight(std::numeric_limits<double>::quiet_NaN()), UsageError);
  });
}

// The module of a synchronizer may itself be such a layer.
TEST(SyncBatchNorm, IsWeighedByASynchronizerOfItAlone) {
  on_ranks([](Communicator& communicator) {
    const auto counts = different(communicator);
    const auto samples = samples_here(counts, communicator);
    const auto total = static_cast<double>(total_of(counts));
    const auto input = wave(shape_of(total_of(counts), {4}), 0.7);
    const auto slope = wave(input.sizes(), 1.3);
    const auto wanted = run_alone(input, slope / total);
    auto layer = make_layer(communicator);
    layer->to(at::kDouble);
    GradientSynchronizer synchronizer{layer, communicator};
    synchronizer.set_samples(samples);
    const auto slope_of_mean = part_of(slope, counts, communicator) / samples;
    const auto mine = run(layer, at::kDouble, part_of(input, counts, communicator), slope_of_mean);
    EXPECT_TRUE(synchronizer.wait());
    expect_near(mine.input_gradient * (static_cast<double>(samples) / total),
                part_of(wanted.input_gradient, counts, communicator), 1e-10, "input gradient");
    expect_near(layer->weight.grad(), wanted.weight_gradient, 1e-10, "weight");
  });
}

TEST(SyncBatchNorm, RefusesDoubleBackward) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;  // LibTorch's own batch norm then, which can
    auto layer = make_layer(communicator);
    const auto loss = layer->forward(torch::ones({2, kChannels}, device()).requires_grad_()).pow(2).sum();
    EXPECT_THAT(message_of<UsageError>([&] { loss.backward({}, true, true); }), HasSubstr("create_graph"));
  });
}

// The mistake is noticed before the sums over ranks of the layers below, for which the other ranks wait.
TEST(SyncBatchNorm, ReportsAMistakeOfOneRankAtTheEndOfBackward) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    torch::nn::Sequential model{torch::nn::Linear(2, kChannels), make_layer(communicator),
                                torch::nn::Linear(kChannels, 2)};
    model->to(device());
    GradientSynchronizer synchronizer{*model, communicator, {.unused = UnusedParameters::allowed}};
    if (communicator.rank() == 1) synchronizer.declare_unused({"2.weight", "2.bias"});
    const auto end_round = [&] {
      model->forward(torch::ones({2, 2}, device())).sum().backward();
      if (communicator.rank() == 1) ADD_FAILURE() << "backward() has not thrown";
      synchronizer.wait();
    };
    EXPECT_THAT(message_of<UsageError>(end_round), AllOf(HasSubstr("'2."), HasSubstr("marked it as unused")));
  });
}

TEST(SyncBatchNorm, RefusesWhatItCannotNormalise) {
  on_ranks([](Communicator& communicator) {
    auto layer = make_layer(communicator);
    EXPECT_THAT(message_of<UsageError>([&] { layer->forward(torch::ones({2, 4}, device())); }),
                AllOf(HasSubstr("3 channels"), HasSubstr("[2, 4]")));
    EXPECT_THROW(layer->forward(torch::ones({kChannels}, device())), UsageError);
    EXPECT_THAT(message_of<UsageError>([&] { layer->forward(torch::ones({2, kChannels}, on_device(at::kLong))); }),
                HasSubstr("Long"));
    EXPECT_THROW(SyncBatchNorm(kChannels, std::shared_ptr<Communicator>{}), UsageError);
  });
}

}  // namespace
}  // namespace libtrain
