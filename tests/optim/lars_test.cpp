#include <libtrain/optim/lars.hpp>

#include <limits>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>

#include <tests/optim/parameters.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::optim {
namespace {

using test::make_odd_parameters;
using test::make_parameters;
using test::message_of;
using test::Parameters;
using test::weight_with_gradient;
using ::testing::HasSubstr;

LarsOptions all_lars_options() {
  return LarsOptions(2).weight_decay(0.1).trust_coefficient(0.02);
}

// Algorithm 1 of the paper, in float64.
void reference_lars_step(const at::Tensor& w, const at::Tensor& g, const at::Tensor& v, const LarsOptions& options) {
  const bool skipped = options.skip_one_dimensional() && w.dim() <= 1;
  const double decay = skipped ? 0.0 : options.weight_decay();
  const double length = w.norm().item<double>();
  const double slope = g.norm().item<double>();
  double trust = 1;
  if (!skipped && length > 0 && slope > 0) {
    trust = options.trust_coefficient() * length / (slope + decay * length + options.eps());
  }
  v.mul_(options.momentum()).add_(g.add(w, decay), options.lr() * trust);
  w.sub_(v);
}

void expect_reference_lars(Parameters (*make)(at::ScalarType), const LarsOptions& options, at::ScalarType type,
                           double relative) {
  const auto parameters = make(type);
  Parameters weights;
  Parameters velocities;
  for (const auto& parameter : parameters) {
    weights.push_back(parameter.detach().to(at::kDouble).clone());
    velocities.push_back(at::zeros_like(weights.back()));
  }
  Lars lars(parameters, options);
  for (int step = 0; step < 10; ++step) {
    test::set_gradients(parameters, step);
    lars.step();
    for (std::size_t index = 0; index + 1 < weights.size(); ++index) {
      reference_lars_step(weights[index], parameters[index].grad().to(at::kDouble), velocities[index], options);
    }
  }
  test::expect_close(parameters, weights, relative);
  EXPECT_FALSE(torch::equal(parameters.front(), make(type).front())) << "nothing was trained";
}

std::vector<LarsOptions> lars_cases() {
  return {LarsOptions(2), all_lars_options(), all_lars_options().momentum(0),
          all_lars_options().skip_one_dimensional(false).lr(0.5)};
}

// Makes one step and returns what the first element has become.
float after_a_lars_step(const at::Tensor& weight, const LarsOptions& options) {
  Lars lars(Parameters{weight}, options);
  lars.step();
  return weight.flatten()[0].item<float>();
}

TEST(Lars, FollowsThePaperInFloat64) {
  for (const auto& options : lars_cases()) {
    expect_reference_lars(make_parameters, options, at::kDouble, 1e-12);
    expect_reference_lars(make_odd_parameters, options, at::kDouble, 1e-12);
  }
}

TEST(Lars, FollowsThePaperInFloat32) {
  for (const auto& options : lars_cases()) {
    expect_reference_lars(make_parameters, options, at::kFloat, 1e-5);
    expect_reference_lars(make_odd_parameters, options, at::kFloat, 1e-5);
  }
}

TEST(Lars, FollowsThePaperInHalfPrecision) {
  expect_reference_lars(make_parameters, all_lars_options().skip_one_dimensional(false).lr(0.5), at::kBFloat16, 0.05);
}

TEST(Lars, StepsByTheRatioOfTheNorms) {
  const auto options = LarsOptions(0.5).weight_decay(0.25).trust_coefficient(0.75).eps(0);
  // |w| = 2, |g| = 4: trust = 0.75 * 2 / (4 + 0.25 * 2) = 1 / 3; the step is 0.5 / 3 * (2 + 0.25) = 0.375.
  EXPECT_NEAR(after_a_lars_step(weight_with_gradient({2, 2}, 1, 2), options), 0.625, 1e-6);
}

TEST(Lars, NeitherAdaptsNorDecaysBiases) {
  const auto options = LarsOptions(0.25).weight_decay(0.5);
  EXPECT_EQ(after_a_lars_step(weight_with_gradient({4}, 1, 2), options), 0.5f);
  EXPECT_EQ(after_a_lars_step(weight_with_gradient({}, 1, 2), options), 0.5f);
}

TEST(Lars, StepsAtItsRateWhereANormIsZero) {
  const auto options = LarsOptions(0.25).weight_decay(0.5).eps(0);
  EXPECT_EQ(after_a_lars_step(weight_with_gradient({2, 2}, 0, 1), options), -0.25f);
  EXPECT_EQ(after_a_lars_step(weight_with_gradient({2, 2}, 1, 0), options), 0.875f);
  EXPECT_EQ(after_a_lars_step(weight_with_gradient({2, 2}, 0, 0), options), 0.0f);
}

TEST(Lars, StepsAtItsRateWhereANormIsZeroInHalfPrecision) {
  const auto weight = torch::zeros({2, 2}, torch::dtype(at::kBFloat16).requires_grad(true));
  weight.mutable_grad() = torch::ones({2, 2}, at::kBFloat16);
  EXPECT_EQ(after_a_lars_step(weight, LarsOptions(0.25).weight_decay(0.5).eps(0)), -0.25f);
}

// A rate that falls to 0 leaves the velocity to act: it holds steps, not gradients.
TEST(Lars, KeepsTheRateInsideOfItsVelocity) {
  const auto weight = weight_with_gradient({1}, 1, 1);
  Lars lars(Parameters{weight}, LarsOptions(0.25).momentum(0.5));
  lars.step();
  lars.param_groups()[0].options().set_lr(0);
  lars.step();
  EXPECT_EQ(weight[0].item<float>(), 1.0f - 0.25f - 0.125f);
}

TEST(Lars, KeepsNoVelocityWithoutMomentum) {
  const auto parameters = make_parameters(at::kFloat);
  Lars lars(parameters, all_lars_options().momentum(0));
  test::train(lars, parameters, 0, 2);
  EXPECT_TRUE(lars.state().empty());
}

TEST(Lars, GivesTheSameBitsOnAnyNumberOfThreads) {
  test::expect_same_on_threads<Lars>(all_lars_options().skip_one_dimensional(false));
}

TEST(Lars, ResumesFromAFileAsIfItHadNotStopped) {
  test::expect_resumes<Lars, Lars>(all_lars_options().skip_one_dimensional(false), LarsOptions(7), 0);
}

TEST(Lars, LetsNoOlderGraphMixWeights) {
  test::expect_older_graphs_refused<Lars>(all_lars_options());
}

TEST(Lars, RefusesWhatItCannotUse) {
  const auto weight = weight_with_gradient({2, 2}, 1, 1);
  EXPECT_THAT(message_of<UsageError>([&] { Lars(Parameters{weight}, LarsOptions(-1)); }),
              HasSubstr("LarsOptions::lr is -1"));
  EXPECT_THROW(Lars(Parameters{weight}, LarsOptions(1).momentum(-0.5)), UsageError);
  EXPECT_THROW(Lars(Parameters{weight}, LarsOptions(1).eps(std::numeric_limits<double>::quiet_NaN())), UsageError);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(Parameters{weight}, std::make_unique<torch::optim::SGDOptions>(0.1));
  EXPECT_THAT(message_of<UsageError>([&] { Lars(groups, all_lars_options()); }),
              HasSubstr("parameter group of Lars has options of another optimizer"));
}

}  // namespace
}  // namespace libtrain::optim
