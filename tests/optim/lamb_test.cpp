#include <libtrain/optim/lamb.hpp>

#include <cmath>
#include <memory>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

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

LambOptions all_lamb_options() {
  return LambOptions(0.02).betas(LambOptions::Betas(0.8, 0.95)).eps(1e-5).weight_decay(0.1);
}

struct Reference {
  at::Tensor w;
  at::Tensor m;
  at::Tensor v;
};

// Algorithm 2 of the paper, in float64.
void reference_lamb_step(const Reference& state, const at::Tensor& g, int t, const LambOptions& options) {
  const auto& [w, m, v] = state;
  const auto [beta1, beta2] = options.betas();
  const bool skipped = options.skip_one_dimensional() && w.dim() <= 1;
  m.copy_(m * beta1 + g * (1 - beta1));
  v.copy_(v * beta2 + g * g * (1 - beta2));
  const auto corrected_m = m / (1 - std::pow(beta1, t));
  const auto corrected_v = v / (1 - std::pow(beta2, t));
  const auto update = corrected_m / (corrected_v.sqrt() + options.eps()) + w * (skipped ? 0.0 : options.weight_decay());
  const double length = w.norm().item<double>();
  const double step = update.norm().item<double>();
  const double trust = !skipped && length > 0 && step > 0 ? length / step : 1.0;
  w.sub_(update * (options.lr() * trust));
}

void expect_reference_lamb(Parameters (*make)(at::ScalarType), const LambOptions& options, at::ScalarType type,
                           double relative) {
  const auto parameters = make(type);
  std::vector<Reference> references;
  Parameters weights;
  for (const auto& parameter : parameters) {
    weights.push_back(parameter.detach().to(at::kDouble).clone());
    references.push_back({weights.back(), at::zeros_like(weights.back()), at::zeros_like(weights.back())});
  }
  Lamb lamb(parameters, options);
  for (int step = 0; step < 10; ++step) {
    test::set_gradients(parameters, step);
    lamb.step();
    for (std::size_t index = 0; index + 1 < parameters.size(); ++index) {
      reference_lamb_step(references[index], parameters[index].grad().to(at::kDouble), step + 1, options);
    }
  }
  test::expect_close(parameters, weights, relative);
  EXPECT_FALSE(torch::equal(parameters.front(), make(type).front())) << "nothing was trained";
}

std::vector<LambOptions> lamb_cases() {
  return {LambOptions(0.01), all_lamb_options(), all_lamb_options().weight_decay(0),
          all_lamb_options().skip_one_dimensional(true)};
}

// Makes one step and returns what the first element has become.
float after_a_lamb_step(const at::Tensor& weight, const LambOptions& options) {
  Lamb lamb(Parameters{weight}, options);
  lamb.step();
  return weight.flatten()[0].item<float>();
}

TEST(Lamb, FollowsThePaperInFloat64) {
  for (const auto& options : lamb_cases()) {
    expect_reference_lamb(make_parameters, options, at::kDouble, 1e-12);
    expect_reference_lamb(make_odd_parameters, options, at::kDouble, 1e-12);
  }
}

TEST(Lamb, FollowsThePaperInFloat32) {
  for (const auto& options : lamb_cases()) {
    expect_reference_lamb(make_parameters, options, at::kFloat, 1e-5);
    expect_reference_lamb(make_odd_parameters, options, at::kFloat, 1e-5);
  }
}

TEST(Lamb, FollowsThePaperInHalfPrecision) {
  expect_reference_lamb(make_parameters, all_lamb_options(), at::kBFloat16, 0.05);
}

// In the first step the corrected moments are g and its square: u = 1 in every element, whatever g is.
TEST(Lamb, StepsByTheNormOfTheWeights) {
  const auto options = LambOptions(0.25).eps(0).weight_decay(0);
  EXPECT_NEAR(after_a_lamb_step(weight_with_gradient({2, 2}, 4, 3), options), 3.0, 1e-6);
  EXPECT_NEAR(after_a_lamb_step(weight_with_gradient({4}, 4, 3), options), 3.0, 1e-6);
  EXPECT_NEAR(after_a_lamb_step(weight_with_gradient({4}, 4, 3), LambOptions(options).skip_one_dimensional(true)), 3.75,
              1e-6);
}

TEST(Lamb, StepsAtItsRateWhereTheWeightsAreZero) {
  const auto options = LambOptions(0.25).eps(0).weight_decay(0.5);
  EXPECT_NEAR(after_a_lamb_step(weight_with_gradient({2, 2}, 0, 3), options), -0.25, 1e-6);
}

TEST(Lamb, StaysWhereThereIsNothingToDo) {
  const auto options = LambOptions(0.25).weight_decay(0);
  EXPECT_EQ(after_a_lamb_step(weight_with_gradient({2, 2}, 2, 0), options), 2.0f);
  EXPECT_EQ(after_a_lamb_step(weight_with_gradient({2, 2}, 0, 0), options), 0.0f);
}

TEST(Lamb, StaysWhereThereIsNothingToDoInHalfPrecision) {
  const auto weight = torch::ones({2, 2}, torch::dtype(at::kBFloat16).requires_grad(true));
  weight.mutable_grad() = torch::zeros({2, 2}, at::kBFloat16);
  EXPECT_EQ(after_a_lamb_step(weight, LambOptions(0.25).weight_decay(0)), 1.0f);
}

TEST(Lamb, GivesTheSameBitsOnAnyNumberOfThreads) {
  test::expect_same_on_threads<Lamb>(all_lamb_options());
}

TEST(Lamb, ResumesFromAFileAsIfItHadNotStopped) {
  test::expect_resumes<Lamb, Lamb>(all_lamb_options().skip_one_dimensional(true), LambOptions(7), 0);
}

TEST(Lamb, LetsNoOlderGraphMixWeights) {
  test::expect_older_graphs_refused<Lamb>(all_lamb_options());
}

TEST(Lamb, RefusesWhatItCannotUse) {
  const auto weight = weight_with_gradient({2, 2}, 1, 1);
  EXPECT_THAT(message_of<UsageError>([&] { Lamb(Parameters{weight}, LambOptions(-1)); }),
              HasSubstr("LambOptions::lr is -1"));
  EXPECT_THAT(
      message_of<UsageError>([&] { Lamb(Parameters{weight}, LambOptions(1).betas(LambOptions::Betas(0.9, 1.0))); }),
      HasSubstr("The second of LambOptions::betas is 1; it must be below 1"));
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(Parameters{weight}, std::make_unique<torch::optim::AdamWOptions>(0.1));
  EXPECT_THAT(message_of<UsageError>([&] { Lamb(groups, all_lamb_options()); }),
              HasSubstr("parameter group of Lamb has options of another optimizer"));
}

}  // namespace
}  // namespace libtrain::optim
