// Batch norm with what follows it, as one operator, computes on a GPU what the separate operators compute.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ostream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <libtrain/models/detail/cuda/batch_norm.hpp>
#include <libtrain/models/residual_blocks.hpp>

#include <tests/support/on_ranks.hpp>

namespace libtrain::models {
namespace {

using detail::can_fuse_batch_norm;
using detail::fused_batch_norm;

constexpr auto kLayout = torch::MemoryFormat::ChannelsLast;

torch::TensorOptions gpu_options(at::ScalarType type) {
  return torch::TensorOptions(type).device(test::device());
}

// The largest difference, relative to the largest number.
double difference(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_EQ(actual.sizes(), expected.sizes());
  EXPECT_TRUE(actual.isfinite().all().item<bool>());
  const auto wanted = expected.detach().to(torch::kCPU, torch::kDouble);
  const auto found = actual.detach().to(torch::kCPU, torch::kDouble);
  return (found - wanted).abs().max().item<double>() / std::max(wanted.abs().max().item<double>(), 1e-30);
}

struct Case {
  at::ScalarType type;
  std::vector<std::int64_t> sizes;
  bool has_residual;
  bool is_rectified;
  double offset;  // of the inputs, whose deviation is 1
};

std::ostream& operator<<(std::ostream& stream, const Case& each) {
  return stream << each.type << " " << at::IntArrayRef(each.sizes) << (each.has_residual ? ", residual" : "")
                << (each.is_rectified ? ", rectified" : "") << ", offset " << each.offset;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto type : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    // One column of vectors and several, rows that do not fill a block, and a column that is half empty.
    for (const std::vector<std::int64_t>& sizes :
         {std::vector<std::int64_t>{5, 8, 1, 1}, {3, 24, 5, 7}, {4, 64, 33, 31}, {2, 328, 3, 3}, {8, 2048, 7, 7}}) {
      for (const bool has_residual : {false, true}) {
        for (const bool is_rectified : {false, true}) cases.push_back({type, sizes, has_residual, is_rectified, 0.5});
      }
    }
  }
  cases.push_back({torch::kFloat, {4, 64, 33, 31}, true, true, 30});
  return cases;
}

at::Tensor leaf(const at::Tensor& values) {
  return values.detach().clone(kLayout).requires_grad_();
}

torch::nn::BatchNorm2d norm_of(std::int64_t channels) {
  torch::nn::BatchNorm2d norm(torch::nn::BatchNorm2dOptions(channels).momentum(0.3));
  const torch::NoGradGuard no_grad;
  norm->weight.uniform_(0.5, 1.5);
  norm->bias.uniform_(-0.5, 0.5);
  return norm;
}

TEST(BatchNormOnGpu, ComputesWhatTheSeparateOperatorsCompute) {
  torch::manual_seed(1);
  for (const auto& each : all_cases()) {
    SCOPED_TRACE(testing::PrintToString(each));
    const auto values = (torch::randn(each.sizes) + each.offset).to(each.type);
    const auto added = torch::randn(each.sizes).to(each.type);
    const auto incoming = torch::randn(each.sizes).to(each.type);
    auto norm = norm_of(each.sizes[1]);
    auto expected_norm = norm_of(each.sizes[1]);
    {
      const torch::NoGradGuard no_grad;
      expected_norm->weight.copy_(norm->weight);
      expected_norm->bias.copy_(norm->bias);
    }
    norm->to(test::device());
    expected_norm->to(torch::kDouble);

    const auto x = leaf(values.to(test::device())), residual = leaf(added.to(test::device()));
    ASSERT_TRUE(can_fuse_batch_norm(*norm, x));
    const auto actual = fused_batch_norm(*norm, x, each.has_residual ? residual : at::Tensor(), each.is_rectified);
    EXPECT_EQ(actual.scalar_type(), each.type);
    EXPECT_TRUE(actual.is_contiguous(kLayout));
    actual.backward(incoming.to(test::device()));

    const auto expected_x = leaf(values.to(torch::kDouble)), expected_residual = leaf(added.to(torch::kDouble));
    auto expected = expected_norm->forward(expected_x);
    if (each.has_residual) expected = expected + expected_residual;
    // As the operator has rectified: values near 0 may be on either side.
    if (each.is_rectified) expected = expected * actual.detach().cpu().gt(0);
    expected.backward(incoming.to(torch::kDouble));

    const double bound = each.type == torch::kFloat ? 2e-5 : each.type == torch::kHalf ? 2e-3 : 1e-2;
    EXPECT_LT(difference(actual, expected), bound);
    EXPECT_LT(difference(x.grad(), expected_x.grad()), bound);
    EXPECT_EQ(residual.grad().defined(), each.has_residual);
    if (each.has_residual) {
      EXPECT_LT(difference(residual.grad(), expected_residual.grad()), bound);
    }
    // In float32 for all types.
    EXPECT_LT(difference(norm->weight.grad(), expected_norm->weight.grad()), 1e-4);
    EXPECT_LT(difference(norm->bias.grad(), expected_norm->bias.grad()), 1e-4);
    EXPECT_LT(difference(norm->running_mean, expected_norm->running_mean), 1e-5);
    EXPECT_LT(difference(norm->running_var, expected_norm->running_var), 1e-5);
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 1);
  }
}

TEST(BatchNormOnGpu, HasTheSameBitsEachTime) {
  torch::manual_seed(2);
  auto norm = norm_of(64);
  norm->to(test::device());
  const auto values = torch::randn({16, 64, 56, 56}, gpu_options(torch::kBFloat16)).contiguous(kLayout);
  std::vector<at::Tensor> first;
  for (int time = 0; time < 5; ++time) {
    norm->zero_grad();
    const auto x = leaf(values);
    const auto output = fused_batch_norm(*norm, x, values, /*is_rectified=*/true);
    output.backward(values);
    const std::vector<at::Tensor> all{output, x.grad(), norm->weight.grad(), norm->bias.grad()};
    if (time == 0) first = all;
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(all[i].equal(first[i])) << i;
  }
}

TEST(BatchNormOnGpu, KeepsNanThroughTheRectifier) {
  auto norm = norm_of(8);
  norm->to(test::device());
  auto residual = torch::zeros({2, 8, 4, 4}, gpu_options(torch::kFloat)).contiguous(kLayout);
  residual[0][3][1][2] = std::numeric_limits<float>::quiet_NaN();
  const auto x = torch::randn({2, 8, 4, 4}, gpu_options(torch::kFloat)).contiguous(kLayout);
  EXPECT_EQ(fused_batch_norm(*norm, x, residual, /*is_rectified=*/true).isnan().sum().item<std::int64_t>(), 1);
}

// An overflow of float16 must not become zeros.
TEST(BatchNormOnGpu, GivesAChannelWithInfinityNoNumbers) {
  for (const double value : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    auto norm = norm_of(8);
    norm->to(test::device());
    auto x = torch::randn({2, 8, 4, 4}, gpu_options(torch::kHalf)).contiguous(kLayout);
    x[1][5][0][3] = value;
    const auto output = fused_batch_norm(*norm, x, {}, /*is_rectified=*/true);
    EXPECT_EQ(output.isnan().sum().item<std::int64_t>(), 2 * 4 * 4);
    EXPECT_TRUE(norm->running_var[5].isnan().item<bool>());
  }
}

TEST(BatchNormOnGpu, LeavesOtherLayoutsAndOptionsToLibTorch) {
  auto norm = norm_of(8);
  norm->to(test::device());
  const auto x = torch::randn({2, 8, 4, 4}, gpu_options(torch::kFloat));
  const auto last = x.contiguous(kLayout);
  EXPECT_TRUE(can_fuse_batch_norm(*norm, last));
  EXPECT_FALSE(can_fuse_batch_norm(*norm, x));
  EXPECT_FALSE(can_fuse_batch_norm(*norm, last.to(torch::kDouble)));
  EXPECT_FALSE(can_fuse_batch_norm(*norm, last.cpu()));
  norm->to(torch::kFloat);  // counts batches in float32 now
  EXPECT_FALSE(can_fuse_batch_norm(*norm, last));
  norm->num_batches_tracked = torch::zeros({}, gpu_options(torch::kLong));
  EXPECT_TRUE(can_fuse_batch_norm(*norm, last));
  norm->eval();
  EXPECT_FALSE(can_fuse_batch_norm(*norm, last));
}

TEST(BatchNormOnGpu, IsNotDifferentiatedTwice) {
  auto norm = norm_of(8);
  norm->to(test::device());
  const auto x = leaf(torch::randn({2, 8, 4, 4}, gpu_options(torch::kFloat)));
  const auto output = fused_batch_norm(*norm, x, {}, /*is_rectified=*/true).square().sum();
  EXPECT_THROW(torch::autograd::grad({output}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true), c10::Error);
}

// Of blocks whose shortcuts have a projection, and do not: a whole network, whose rectifiers multiply the differences
// of roundings, would deviate by a tenth.
template <typename Block>
void expect_equal_blocks(const detail::ResidualBlockOptions& options) {
  torch::manual_seed(3);
  Block expected_block(options);
  Block block(options);
  {
    const torch::NoGradGuard no_grad;
    const auto to = block->parameters(), from = expected_block->parameters();
    for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
  }
  expected_block->to(torch::kDouble);
  block->to(test::device());
  const auto values = torch::randn({4, options.channels, 14, 14});
  const auto expected_x = leaf(values.to(torch::kDouble)), x = leaf(values.to(test::device()));
  const auto expected = expected_block->forward(expected_x), actual = block->forward(x);
  const auto incoming = torch::randn(actual.sizes());
  expected.backward(incoming.to(torch::kDouble));
  actual.backward(incoming.to(test::device()));
  EXPECT_THAT(actual.grad_fn()->name(), ::testing::HasSubstr("FusedBatchNorm"));
  EXPECT_LT(difference(actual, expected), 1e-4);
  EXPECT_LT(difference(x.grad(), expected_x.grad()), 1e-2);
  const auto parameters = block->parameters(), wanted = expected_block->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_LT(difference(parameters[i].grad(), wanted[i].grad()), 1e-2) << i;
  }
}

TEST(ResidualBlocksOnGpu, ComputeTheSameOutputsAndGradients) {
  const detail::ResidualBlockOptions same{.channels = 64, .width = 64, .inner_width = 64, .groups = 1, .stride = 1};
  const detail::ResidualBlockOptions smaller{.channels = 64, .width = 32, .inner_width = 32, .groups = 1, .stride = 2};
  const detail::ResidualBlockOptions four{.channels = 64, .width = 16, .inner_width = 16, .groups = 1, .stride = 1};
  expect_equal_blocks<detail::BasicBlock>(same);
  expect_equal_blocks<detail::BasicBlock>(smaller);
  expect_equal_blocks<detail::Bottleneck>(four);
  expect_equal_blocks<detail::Bottleneck>(smaller);
}

}  // namespace
}  // namespace libtrain::models
