// RoBERTa's operators beside LibTorch's in float64, and, where dropout makes them random, beside finite differences:
// what is dropped depends on a seed alone.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <libtrain/models/roberta/detail/attention.hpp>
#include <libtrain/models/roberta/detail/attention_kernels.hpp>
#include <libtrain/models/roberta/detail/encoder.hpp>
#include <libtrain/models/roberta/detail/layer_operators.hpp>
#include <libtrain/models/roberta/detail/recompute.hpp>

#include <tests/support/fresh_seed.hpp>

namespace libtrain::models::detail {
namespace {

using Operator = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

constexpr double kDropped = 0.3;

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 && b.numel() == 0) return 0;  // of no query at all
  const auto scale = std::max(1.0, b.abs().max().item<double>());
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() / scale;
}

std::vector<at::Tensor> leaves(const std::vector<at::Tensor>& values, at::ScalarType type) {
  std::vector<at::Tensor> result;
  for (const auto& each : values) result.push_back(each.detach().to(type, false, true).requires_grad_());
  return result;
}

// Outputs, and gradients of a weighted sum of them.
std::vector<at::Tensor> results(const Operator& compute, const std::vector<at::Tensor>& inputs) {
  const auto output = compute(inputs);
  // Multiples of 1/8 from -1 to 1, which every type has.
  const auto weights = torch::arange(output.numel()).mul(37).remainder(17).sub(8).div(8).view(output.sizes());
  auto found = torch::autograd::grad({(output * weights.to(output.scalar_type())).sum()}, inputs);
  found.insert(found.begin(), output.detach());
  return found;
}

// `compute` in float32 and bfloat16 against itself in float64, for which it is made of LibTorch's operators.
void expect_as_in_double(const Operator& compute, const std::vector<at::Tensor>& values) {
  const auto rounded = leaves(values, at::kBFloat16);
  for (const auto& [type, tolerance] : {std::pair{at::kFloat, 2e-6}, std::pair{at::kBFloat16, 3e-2}}) {
    const auto& inputs = type == at::kFloat ? values : rounded;
    const auto found = results(compute, leaves(inputs, type));
    const auto expected = results(compute, leaves(inputs, at::kDouble));
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t k = 0; k < found.size(); ++k) {
      EXPECT_EQ(found[k].scalar_type(), type);
      EXPECT_LT(largest_difference(found[k], expected[k]), tolerance) << type << ", result " << k;
    }
  }
}

// The derivative of a sum of the outputs in a random direction.
void expect_gradients_of_differences(const Operator& compute, const std::vector<at::Tensor>& values) {
  const auto inputs = leaves(values, at::kFloat);
  const auto weights = torch::randn(compute(inputs).sizes(), torch::kDouble);
  const auto weighted = [&](const std::vector<at::Tensor>& at) {
    return (compute(at).to(at::kDouble) * weights).sum();
  };
  const auto gradients = torch::autograd::grad({weighted(inputs)}, inputs);
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const auto direction = torch::randn_like(values[k]);
    const double step = 2e-3;
    auto ahead = values, behind = values;
    ahead[k] = values[k] + step * direction;
    behind[k] = values[k] - step * direction;
    const double difference = (weighted(ahead) - weighted(behind)).item<double>() / (2 * step);
    const double slope = (gradients[k].to(at::kDouble) * direction).sum().item<double>();
    EXPECT_NEAR(slope, difference, 2e-3 * gradients[k].to(at::kDouble).norm().item<double>() + 1e-3) << "input " << k;
  }
}

TextRows random_rows(bool few_queries) {
  TextRows rows;
  for (int text = 0; text < 5; ++text) {
    rows.keys.push_back(torch::randint(1, 40, {}).item<std::int64_t>());
    rows.queries.push_back(few_queries ? torch::randint(0, 2, {}).item<std::int64_t>() : rows.keys.back());
  }
  rows.keys.push_back(rows.keys.front());  // of equal length
  rows.queries.push_back(rows.queries.front());
  return rows;
}

std::int64_t total(const std::vector<std::int64_t>& counts) {
  std::int64_t sum = 0;
  for (const auto count : counts) sum += count;
  return sum;
}

std::vector<at::Tensor> random_attention(const TextRows& rows, std::int64_t width) {
  return {torch::randn({total(rows.queries), width}), torch::randn({total(rows.keys), width}),
          torch::randn({total(rows.keys), width})};
}

class RobertaOperators : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(seed_.value); }

  test::FreshSeed seed_;
};

TEST_F(RobertaOperators, AttendAsLibTorchDoes) {
  for (const bool few_queries : {false, true}) {
    // Heads whose width is a multiple of 16 and not.
    for (const auto& [width, heads] : {std::pair{64, 2}, std::pair{96, 4}, std::pair{128, 2}}) {
      const auto rows = random_rows(few_queries);
      const auto attention = [&, heads = heads](const std::vector<at::Tensor>& inputs) {
        return attend(inputs[0], inputs[1], inputs[2], rows, heads, {});
      };
      expect_as_in_double(attention, random_attention(rows, width));
    }
  }
}

TEST_F(RobertaOperators, AttentionWithDropoutHasTheGradientsOfDifferences) {
  const auto rows = random_rows(false);
  expect_gradients_of_differences(
      [&](const std::vector<at::Tensor>& inputs) {
        return attend(inputs[0], inputs[1], inputs[2], rows, 2, {kDropped, 12345});
      },
      random_attention(rows, 48));
}

TEST_F(RobertaOperators, AttentionDropsProbabilities) {
  constexpr std::int64_t kTexts = 40, kKeys = 32;
  const TextRows rows{std::vector<std::int64_t>(kTexts, kKeys), std::vector<std::int64_t>(kTexts, kKeys)};
  auto inputs = random_attention(rows, kKeys);
  inputs[2] = torch::eye(kKeys).repeat({kTexts, 1});  // outputs are the probabilities
  const auto all = attend(inputs[0], inputs[1], inputs[2], rows, 1, {});
  const auto some = attend(inputs[0], inputs[1], inputs[2], rows, 1, {kDropped, 777});
  const auto is_dropped = some.eq(0);
  // 40,960 draws: five standard deviations are 0.0113.
  EXPECT_NEAR(is_dropped.to(at::kDouble).mean().item<double>(), kDropped, 0.012);
  EXPECT_LT(largest_difference(some, torch::where(is_dropped, torch::zeros_like(all), all / (1 - kDropped))), 1e-6);
  EXPECT_FALSE(at::equal(some, attend(inputs[0], inputs[1], inputs[2], rows, 1, {kDropped, 778})));
  EXPECT_TRUE(at::equal(some, attend(inputs[0], inputs[1], inputs[2], rows, 1, {kDropped, 777})));
}

TEST_F(RobertaOperators, AttentionDropsOthersForEachHeadAndText) {
  constexpr std::int64_t kTexts = 2, kKeys = 32, kHeads = 4;
  const TextRows rows{std::vector<std::int64_t>(kTexts, kKeys), std::vector<std::int64_t>(kTexts, kKeys)};
  const auto queries = torch::zeros({kTexts * kKeys, kHeads * kKeys});
  const auto values = torch::eye(kKeys).repeat({kTexts, kHeads});  // outputs are the probabilities
  const auto mixed = attend(queries, queries, values, rows, kHeads, {kDropped, 99});
  const auto masks =
      mixed.view({kTexts, kKeys, kHeads, kKeys}).eq(0).transpose(1, 2).reshape({kTexts * kHeads, kKeys * kKeys});
  for (std::int64_t k = 0; k < masks.size(0); ++k) {
    for (std::int64_t other = 0; other < k; ++other) {
      // 0.7^2 + 0.3^2 = 0.58 if they are independent; five standard deviations of 1,024 draws are 0.077.
      EXPECT_NEAR(masks[k].eq(masks[other]).to(at::kDouble).mean().item<double>(), 0.58, 0.08) << k << " " << other;
    }
  }
}

TEST_F(RobertaOperators, AttentionStaysInItsScratchMemory) {
  constexpr std::int64_t kWidth = 24, kGuard = 64;
  constexpr float kMark = 4321;
  for (const auto& counts : {std::pair{1, 1}, {1, 37}, {7, 5}, {32, 32}, {50, 17}}) {
    const std::int64_t queries = counts.first, keys = counts.second;
    const auto inputs = torch::randn({5, std::max(queries, keys), kWidth});
    const auto number = [&](int k) { return inputs[k].const_data_ptr<float>(); };
    auto results = torch::empty({4, std::max(queries, keys), kWidth});
    const auto result = [&](int k) { return results[k].mutable_data_ptr<float>(); };
    auto log_sums = torch::empty({queries});
    const AttentionHead<float> head{.queries = number(0),
                                    .keys = number(1),
                                    .values = number(2),
                                    .query_count = queries,
                                    .key_count = keys,
                                    .width = kWidth,
                                    .stride = kWidth,
                                    .dropout = {kDropped, 3}};
    const auto expect_untouched = [&](std::int64_t size, const auto& compute) {
      auto scratch = torch::full({size + kGuard}, kMark);
      compute(scratch.mutable_data_ptr<float>());
      EXPECT_TRUE(scratch.slice(0, size, size + kGuard).eq(kMark).all().item<bool>()) << queries << " " << keys;
    };
    expect_untouched(attend_scratch(keys, kWidth), [&](float* scratch) {
      attend_head(head, result(0), log_sums.mutable_data_ptr<float>(), scratch);
    });
    expect_untouched(gradients_scratch(queries, keys, kWidth), [&](float* scratch) {
      attention_gradients(head,
                          AttentionGradients<float>{.outputs = result(0),
                                                    .of_outputs = number(4),
                                                    .log_sums = log_sums.const_data_ptr<float>(),
                                                    .to_queries = result(1),
                                                    .to_keys = result(2),
                                                    .to_values = result(3)},
                          scratch);
    });
  }
  // A few rows, rather than all pairs of 8,192 tokens.
  EXPECT_LT(attend_scratch(8192, 64), 8192 * (2 * 64 + 8));
}

std::vector<at::Tensor> random_norm() {
  constexpr std::int64_t kRows = 70, kWidth = 48;
  return {torch::randn({kRows, kWidth}), torch::randn({kWidth}), torch::randn({kRows, kWidth}),
          torch::rand({kWidth}) + 0.5, torch::randn({kWidth})};
}

Operator norm_with(const Dropout& dropout) {
  return [dropout](const std::vector<at::Tensor>& inputs) {
    return add_and_norm(inputs[0], inputs[1], inputs[2], inputs[3], inputs[4], 1e-5, dropout);
  };
}

TEST_F(RobertaOperators, AddAndNormAsLibTorchDoes) {
  expect_as_in_double(norm_with({}), random_norm());
}

TEST_F(RobertaOperators, NormWithDropoutHasTheGradientsOfDifferences) {
  expect_gradients_of_differences(norm_with({kDropped, 4321}), random_norm());
}

TEST_F(RobertaOperators, NormDropsWhatItIsGivenAtTheRate) {
  constexpr std::int64_t kRows = 2000, kWidth = 48;
  const auto zeros = torch::zeros({kRows, kWidth}), none = torch::zeros({kWidth});
  // So large an epsilon leaves the differences from the mean as they are.
  const auto normed =
      add_and_norm(torch::ones({kRows, kWidth}), none, zeros, torch::full({kWidth}, 1e6), none, 1e12, {kDropped, 2468});
  const auto sums = normed - std::get<0>(normed.min(1, /*keepdim=*/true));
  const auto is_dropped = sums.lt(0.5 / (1 - kDropped));
  // 96,000 draws: five standard deviations are 0.0074.
  EXPECT_NEAR(is_dropped.to(at::kDouble).mean().item<double>(), kDropped, 0.0075);
  EXPECT_LT(largest_difference(sums, torch::where(is_dropped, zeros, zeros + 1 / (1 - kDropped))), 1e-4);
  // Two rows agree in 0.58 of the numbers.
  EXPECT_NEAR(is_dropped.slice(0, 1).eq(is_dropped.slice(0, 0, -1)).to(at::kDouble).mean().item<double>(), 0.58, 0.02);
}

TEST_F(RobertaOperators, EmbeddingsAreDroppedAtTheRate) {
  // An encoder without layers returns its embeddings.
  const RobertaOptions options{.vocabulary = 100, .hidden = 64, .layers = 0, .heads = 4, .dropout = kDropped};
  RobertaEncoderImpl encoder(options);
  initialize_roberta(encoder, options);
  const PackedTexts texts{torch::randint(4, 100, {400}, torch::kLong), std::vector<std::int64_t>(20, 20)};
  encoder.eval();
  const auto all = encoder.forward(texts, {});
  encoder.train();
  const auto some = encoder.forward(texts, {});
  const auto is_dropped = some.eq(0);
  // 25,600 draws: five standard deviations are 0.0143.
  EXPECT_NEAR(is_dropped.to(at::kDouble).mean().item<double>(), kDropped, 0.015);
  EXPECT_LT(largest_difference(some, torch::where(is_dropped, torch::zeros_like(all), all / (1 - kDropped))), 1e-6);
}

TEST_F(RobertaOperators, EachDropoutOfALayerHasASeedOfItsOwn) {
  const RobertaOptions options{.dropout = 0.25, .attention_dropout = 0.5};
  std::set<std::uint64_t> seeds;
  for (int layer = 0; layer < 3; ++layer) {
    const auto drawn = draw_dropout(options);
    EXPECT_EQ(drawn.probabilities.probability, 0.5);
    EXPECT_EQ(drawn.attended.probability, 0.25);
    EXPECT_EQ(drawn.output.probability, 0.25);
    for (const auto& each : {drawn.probabilities, drawn.attended, drawn.output}) seeds.insert(each.seed);
  }
  EXPECT_EQ(seeds.size(), 9);
}

TEST_F(RobertaOperators, ARecomputedLayerIsCalledAgainInTheBackwardPass) {
  int calls = 0;
  const auto layer = [&](const at::Tensor& states, const std::vector<at::Tensor>& parameters) {
    ++calls;
    return (states * parameters[0]).tanh();
  };
  const auto inputs = leaves({torch::randn({5, 7}), torch::randn({7})}, at::kDouble);
  const auto outputs = recompute_in_backward(layer, inputs[0], {inputs[1]}, false);
  EXPECT_EQ(calls, 1);
  const auto found = torch::autograd::grad({outputs.sum()}, inputs);
  EXPECT_EQ(calls, 2);
  const auto expected = torch::autograd::grad({(inputs[0] * inputs[1]).tanh().sum()}, inputs);
  for (std::size_t k = 0; k < inputs.size(); ++k) EXPECT_TRUE(at::equal(found[k], expected[k])) << k;
}

TEST_F(RobertaOperators, ARecomputedLayerNoticesChangedParameters) {
  const auto layer = [](const at::Tensor& states, const std::vector<at::Tensor>& parameters) {
    return (states * parameters[0]).tanh();
  };
  for (const std::size_t changed : {0, 1}) {
    const auto inputs = leaves({torch::randn({5, 7}), torch::randn({7})}, at::kFloat);
    const auto outputs = recompute_in_backward(layer, inputs[0], {inputs[1]}, false);
    {
      const at::NoGradGuard no_grad;
      inputs[changed].add_(1);
    }
    EXPECT_THROW(outputs.sum().backward(), c10::Error) << changed;
  }
}

TEST_F(RobertaOperators, FeedForwardAsLibTorchDoes) {
  expect_as_in_double(
      [](const std::vector<at::Tensor>& inputs) { return feed_forward(inputs[0], inputs[1], inputs[2], inputs[3]); },
      {torch::randn({70, 32}), 0.3 * torch::randn({64, 32}), torch::randn({64}), 0.3 * torch::randn({32, 64})});
}

TEST_F(RobertaOperators, HaveNoSecondDerivative) {
  const auto refuse = [](const at::Tensor& outputs, const at::Tensor& inputs) {
    EXPECT_THROW(torch::autograd::grad({outputs.square().sum()}, {inputs}, {}, true, /*create_graph=*/true),
                 c10::Error);
  };
  const auto inputs = torch::randn({70, 32}).requires_grad_();
  refuse(feed_forward(inputs, torch::randn({64, 32}), torch::randn({64}), torch::randn({32, 64})), inputs);
  refuse(add_and_norm(inputs, torch::randn({32}), torch::randn({70, 32}), torch::randn({32}), torch::randn({32}), 1e-5,
                      {}),
         inputs);
  const auto rows = random_rows(false);
  const auto attended = random_attention(rows, 64);
  attended[0].requires_grad_();
  refuse(attend(attended[0], attended[1], attended[2], rows, 2, {}), attended[0]);
  const auto square = [](const at::Tensor& states, const std::vector<at::Tensor>&) { return states.square(); };
  refuse(recompute_in_backward(square, inputs, {}, false), inputs);
}

TEST_F(RobertaOperators, DoNotDependOnThreads) {
  const auto rows = random_rows(false);
  const auto attention = random_attention(rows, 64);
  const auto norm = random_norm();
  const auto compute = [&] {
    auto found = results(
        [&](const std::vector<at::Tensor>& inputs) {
          return attend(inputs[0], inputs[1], inputs[2], rows, 4, {kDropped, 5});
        },
        leaves(attention, at::kFloat));
    for (const auto& each : results(norm_with({kDropped, 6}), leaves(norm, at::kFloat))) found.push_back(each);
    return found;
  };
  const auto threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto alone = compute();
  at::set_num_threads(3);
  const auto together = compute();
  at::set_num_threads(threads);
  for (std::size_t k = 0; k < alone.size(); ++k) EXPECT_TRUE(at::equal(alone[k], together[k])) << k;
}

}  // namespace
}  // namespace libtrain::models::detail
