#include <libtrain/optim/gradient_clipping.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/types.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::optim {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

at::Tensor with_gradient(const at::Tensor& gradient) {
  auto parameter = torch::zeros(gradient.sizes(), torch::requires_grad());
  parameter.mutable_grad() = gradient;
  return parameter;
}

// Of many sizes, around those at which a loop over vector registers ends.
std::vector<at::Tensor> random_parameters(at::ScalarType type, std::uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<at::Tensor> parameters;
  for (const std::int64_t size : {1, 7, 63, 64, 65, 129, 1000}) {
    parameters.push_back(with_gradient(torch::empty({size}, at::kDouble).normal_(0, 2, generator).to(type)));
  }
  return parameters;
}

TEST(GradientClipping, NormIsThatOfAllGradientsTogether) {
  const std::vector parameters = {with_gradient(torch::tensor({3.0f, -4.0f})), with_gradient(torch::tensor({-12.0f}))};
  EXPECT_EQ(gradient_norm(parameters), 13);
  EXPECT_EQ(gradient_norm(parameters, 1), 19);
  EXPECT_EQ(gradient_norm(parameters, kInfinity), 12);
}

TEST(GradientClipping, ScalesGradientsThatAreTooLong) {
  const std::vector parameters = {with_gradient(torch::tensor({3.0f, -4.0f})), with_gradient(torch::tensor({-12.0f}))};
  EXPECT_EQ(clip_gradients(parameters, {.max_norm = 6.5}), 13);
  EXPECT_TRUE(torch::allclose(parameters[0].grad(), torch::tensor({1.5f, -2.0f})));
  EXPECT_TRUE(torch::allclose(parameters[1].grad(), torch::tensor({-6.0f})));
}

TEST(GradientClipping, DoesNotTouchGradientsThatAreShortEnough) {
  const auto parameter = with_gradient(torch::tensor({3.0f, 4.0f}));
  const auto writes = parameter.grad()._version();
  EXPECT_EQ(clip_gradients({parameter}, {.max_norm = 5.1}), 5);
  EXPECT_EQ(clip_gradients({parameter}, {.max_norm = kInfinity}), 5);
  EXPECT_EQ(parameter.grad()._version(), writes);
  EXPECT_TRUE(torch::equal(parameter.grad(), torch::tensor({3.0f, 4.0f})));
}

TEST(GradientClipping, AgreesWithPyTorch) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const double norm : {1.0, 2.0, kInfinity}) {
      for (const double max_norm : {0.3, 4.0, 1e6}) {
        const auto ours = random_parameters(type, 3);
        const auto theirs = random_parameters(type, 3);
        const double expected = torch::nn::utils::clip_grad_norm_(theirs, max_norm, norm);
        EXPECT_NEAR(clip_gradients(ours, {.max_norm = max_norm, .norm = norm}), expected, 1e-5 * expected);
        for (std::size_t index = 0; index < ours.size(); ++index) {
          EXPECT_TRUE(torch::allclose(ours[index].grad(), theirs[index].grad(), 1e-5, 1e-7)) << index;
        }
      }
    }
  }
}

TEST(GradientClipping, SumsHalfPrecisionWithoutOverflow) {
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    // The square of 300 is beyond float16, and so is the sum of the magnitudes.
    const auto parameter = with_gradient(torch::full({1000}, -300, type));
    EXPECT_NEAR(gradient_norm({parameter}), 300 * std::sqrt(1000.0), 1e-9);
    EXPECT_EQ(gradient_norm({parameter}, 1), 300000);
    EXPECT_EQ(gradient_norm({parameter}, kInfinity), 300);
    clip_gradients({parameter}, {.max_norm = 150 * std::sqrt(1000.0)});
    EXPECT_EQ(parameter.grad().scalar_type(), type);
    EXPECT_TRUE(torch::allclose(parameter.grad().to(at::kFloat), torch::full({1000}, -150.0), 0.01));
  }
}

TEST(GradientClipping, TakesSeveralTypesInOneList) {
  const std::vector parameters = {
      with_gradient(torch::full({2}, 1, at::kFloat)), with_gradient(torch::full({3}, 2, at::kBFloat16)),
      with_gradient(torch::full({1}, 3, at::kDouble)), with_gradient(torch::full({1}, 5, at::kFloat))};
  EXPECT_NEAR(clip_gradients(parameters, {.max_norm = std::sqrt(12.0)}), std::sqrt(48.0), 1e-12);
  EXPECT_NEAR(parameters[1].grad()[2].item<double>(), 1, 0.01);
  EXPECT_NEAR(parameters[2].grad()[0].item<double>(), 1.5, 1e-6);
  EXPECT_NEAR(parameters[3].grad()[0].item<double>(), 2.5, 1e-6);
}

TEST(GradientClipping, KeepsSumsInFloat64) {
  // Float32 has no number this close to the norm.
  const auto parameter = with_gradient(torch::full({1'000'000}, 0.1f));
  EXPECT_NEAR(gradient_norm({parameter}), 1000 * static_cast<double>(0.1f), 1e-9);
}

TEST(GradientClipping, DoesNotDependOnTheNumberOfThreads) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(7u);
  const auto parameter = with_gradient(torch::empty({300'000}).normal_(0, 1, generator));
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const double alone = gradient_norm({parameter});
  at::set_num_threads(3);
  EXPECT_EQ(gradient_norm({parameter}), alone);
  at::set_num_threads(before);
}

TEST(GradientClipping, SkipsParametersWithoutGradients) {
  const auto without = torch::zeros({2}, torch::requires_grad());
  const auto empty = with_gradient(torch::zeros({0}));
  EXPECT_EQ(clip_gradients({without, with_gradient(torch::tensor({3.0f, 4.0f})), empty}, {.max_norm = 1}), 5);
  EXPECT_FALSE(without.grad().defined());
  EXPECT_EQ(clip_gradients({without, empty}, {.max_norm = 1}), 0);
  EXPECT_EQ(gradient_norm({}), 0);
}

TEST(GradientClipping, CountsTiedParametersOnce) {
  const auto tied = with_gradient(torch::tensor({3.0f, 4.0f}));
  EXPECT_EQ(clip_gradients({tied, tied}, {.max_norm = 2.5}), 5);
  EXPECT_TRUE(torch::allclose(tied.grad(), torch::tensor({1.5f, 2.0f})));
}

TEST(GradientClipping, TakesGradientsOfAnyLayout) {
  const auto image = torch::arange(24, at::kFloat).view({1, 4, 2, 3});
  const auto channels_last = image.contiguous(at::MemoryFormat::ChannelsLast);
  const auto strided = torch::arange(6, at::kFloat).slice(0, 0, 6, 2);
  EXPECT_NEAR(gradient_norm({with_gradient(channels_last)}), std::sqrt(23.0 * 24 * 47 / 6), 1e-12);
  EXPECT_NEAR(gradient_norm({with_gradient(strided)}), std::sqrt(4.0 + 16), 1e-12);
  clip_gradients({with_gradient(strided)}, {.max_norm = std::sqrt(5.0)});
  EXPECT_TRUE(torch::allclose(strided, torch::tensor({0.0f, 1.0f, 2.0f})));
}

TEST(GradientClipping, NormShowsWhatIsNotFinite) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const double norm : {1.0, 2.0, kInfinity}) {
      const auto gradient = torch::ones({200}, type);
      const std::vector parameters = {with_gradient(torch::ones({3}, type)), with_gradient(gradient),
                                      with_gradient(torch::full({5}, 1000, type))};
      gradient[10] = -kInfinity;
      EXPECT_EQ(gradient_norm(parameters, norm), kInfinity);
      gradient[20] = kNan;
      EXPECT_TRUE(std::isnan(gradient_norm(parameters, norm)));
    }
  }
}

TEST(GradientClipping, SpreadsWhatIsNotFiniteAsPyTorchDoes) {
  for (const double value : {kInfinity, kNan}) {
    const auto gradient = torch::tensor({1.0f, static_cast<float>(value), -2.0f});
    const auto ours = with_gradient(gradient.clone());
    const auto theirs = with_gradient(gradient.clone());
    EXPECT_FALSE(std::isfinite(clip_gradients({ours}, {.max_norm = 1})));
    torch::nn::utils::clip_grad_norm_(std::vector{theirs}, 1);
    EXPECT_TRUE(torch::allclose(ours.grad(), theirs.grad(), 1e-5, 1e-8, /*equal_nan=*/true));
  }
}

TEST(GradientClipping, ErrorNamesTheGradientThatIsNotFinite) {
  const auto gradient = torch::full({2, 3}, kNan);
  const std::vector parameters = {with_gradient(torch::full({1}, 9.0)), with_gradient(gradient)};
  EXPECT_THAT(message_of<UsageError>([&] { clip_gradients(parameters, {.max_norm = 1, .error_if_non_finite = true}); }),
              AllOf(HasSubstr("nan: the gradient of parameter 1 of 2"), HasSubstr("[2, 3]")));
  EXPECT_EQ(parameters[0].grad()[0].item<float>(), 9.0f);
  gradient.fill_(10);
  EXPECT_NO_THROW(clip_gradients(parameters, {.max_norm = 1, .error_if_non_finite = true}));
}

TEST(GradientClipping, MisuseIsNamed) {
  const auto parameter = with_gradient(torch::ones({3}));
  EXPECT_THAT(message_of<UsageError>([&] { gradient_norm({parameter}, 3); }), HasSubstr("exponent 3"));
  EXPECT_THROW(gradient_norm({parameter}, -kInfinity), UsageError);
  EXPECT_THAT(message_of<UsageError>([&] { clip_gradients({parameter}, {.max_norm = 0}); }),
              HasSubstr("max_norm is 0"));
  EXPECT_THROW(clip_gradients({parameter}, {.max_norm = kNan}), UsageError);
  EXPECT_THROW(clip_gradients({parameter}, {.max_norm = 1, .norm = kNan}), UsageError);
  const auto sparse = with_gradient(torch::ones({3}).to_sparse());
  EXPECT_THAT(message_of<UsageError>([&] { gradient_norm({parameter, sparse}); }),
              AllOf(HasSubstr("parameter 1 of 2"), HasSubstr("sparse")));
  const auto of_complex = with_gradient(torch::ones({3}, at::kComplexFloat));
  EXPECT_THAT(message_of<UsageError>([&] { gradient_norm({of_complex}); }), HasSubstr("ComplexFloat"));
}

}  // namespace
}  // namespace libtrain::optim
