#pragma once

#include <sstream>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize.h>
#include <torch/types.h>

// Parameters for optimizers to train, and comparisons of what two optimizers have made of them.

namespace libtrain::test {

using Parameters = std::vector<at::Tensor>;

/// Values in [-1, 1] that are a function of `seed`.
inline at::Tensor wave(at::IntArrayRef sizes, at::ScalarType type, int seed) {
  const auto values = torch::arange(torch::empty(sizes).numel(), at::kDouble);
  return values.add(0.3).mul(0.7 + 0.013 * seed).add(seed).sin().view(sizes).to(type);
}

/// A matrix, a vector, channels_last weights, a vector that several threads share, and one that never has a gradient.
inline Parameters make_parameters(at::ScalarType type) {
  Parameters parameters{wave({3, 4}, type, 1), wave({5}, type, 2),
                        wave({4, 3, 3, 2}, type, 3).contiguous(at::MemoryFormat::ChannelsLast), wave({70001}, type, 4),
                        wave({2, 2}, type, 5)};
  for (auto& parameter : parameters) parameter.set_requires_grad(true);
  return parameters;
}

/// Memory with holes, which no kernel takes, a number, nothing, weights of which all dimensions but two are 1, and one
/// that never has a gradient.
inline Parameters make_odd_parameters(at::ScalarType type) {
  Parameters parameters{wave({6, 4}, type, 1).narrow(1, 0, 3).detach(), wave({}, type, 2), torch::empty({0, 3}, type),
                        wave({4, 3, 1, 1}, type, 3).contiguous(at::MemoryFormat::ChannelsLast), wave({2, 2}, type, 5)};
  for (auto& parameter : parameters) parameter.set_requires_grad(true);
  return parameters;
}

inline Parameters copies_of(const Parameters& parameters) {
  Parameters copies;
  for (const auto& parameter : parameters) copies.push_back(parameter.detach().clone().set_requires_grad(true));
  return copies;
}

/// Gives all but the last parameter the gradients of a step; in every other step their elements lie in another order
/// than those of channels_last parameters.
inline void set_gradients(const Parameters& parameters, int step) {
  for (std::size_t index = 0; index + 1 < parameters.size(); ++index) {
    const auto& parameter = parameters[index];
    const auto gradient =
        wave(parameter.sizes(), parameter.scalar_type(), 10 * step + static_cast<int>(index)).to(parameter.device());
    parameter.mutable_grad() = step % 2 == 0 ? at::empty_like(parameter).copy_(gradient) : gradient;
  }
}

/// Makes steps `begin` to `end`, without the last.
inline void train(torch::optim::Optimizer& optimizer, const Parameters& parameters, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    set_gradients(parameters, step);
    optimizer.step();
  }
}

/// No difference above `relative` times the largest value of each parameter.
inline void expect_close(const Parameters& actual, const Parameters& expected, double relative) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t index = 0; index < actual.size(); ++index) {
    if (expected[index].numel() == 0) continue;
    const auto wanted = expected[index].detach().to(at::kDouble);
    const auto difference = actual[index].detach().to(at::kDouble).sub(wanted).abs().max().item<double>();
    EXPECT_LE(difference, relative * wanted.abs().max().item<double>()) << "parameter " << index;
  }
}

inline void expect_equal(const Parameters& actual, const Parameters& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t index = 0; index < actual.size(); ++index) {
    EXPECT_TRUE(torch::equal(actual[index], expected[index])) << "parameter " << index;
  }
}

/// Trains the same parameters with two optimizers for 20 steps.
template <typename Ours, typename Theirs, typename Options>
void expect_same_training(Parameters (*make)(at::ScalarType), const Options& options, at::ScalarType type,
                          double relative) {
  const auto parameters = make(type);
  const auto expected = make(type);
  Ours ours(parameters, options);
  Theirs theirs(expected, options);
  train(ours, parameters, 0, 20);
  train(theirs, expected, 0, 20);
  expect_close(parameters, expected, relative);
  EXPECT_FALSE(torch::equal(parameters.front(), make(type).front())) << "nothing was trained";
}

/// Saves an optimizer after five steps, loads it into one made with `other` options, and goes on with both for five
/// steps. Bit-equal where `relative` is 0.
template <typename Saved, typename Loaded, typename Options>
void expect_resumes(const Options& options, const Options& other, double relative) {
  const auto parameters = make_parameters(at::kFloat);
  Saved saved(parameters, options);
  train(saved, parameters, 0, 5);
  std::stringstream file;
  torch::save(saved, file);
  const auto resumed = copies_of(parameters);
  Loaded loaded(resumed, other);
  torch::load(loaded, file);
  train(saved, parameters, 5, 10);
  train(loaded, resumed, 5, 10);
  if (relative == 0) {
    expect_equal(resumed, parameters);
  } else {
    expect_close(resumed, parameters, relative);
  }
}

/// Trains with one intra-op thread and with three. ThreadSanitizer does not see how OpenMP orders its threads.
template <typename Optimizer, typename Options>
void expect_same_on_threads(const Options& options) {
#if !defined(__SANITIZE_THREAD__)
  const int threads = at::get_num_threads();
  std::vector<Parameters> results;
  for (const int count : {1, 3}) {
    at::set_num_threads(count);
    results.push_back(make_parameters(at::kFloat));
    Optimizer optimizer(results.back(), options);
    train(optimizer, results.back(), 0, 3);
  }
  at::set_num_threads(threads);
  expect_equal(results[1], results[0]);
#else
  static_cast<void>(options);
#endif
}

/// A step that leaves an older graph valid would let backward() mix weights from before and after.
template <typename Optimizer, typename Options>
void expect_older_graphs_refused(const Options& options) {
  const auto weight = torch::ones({2, 2}, torch::requires_grad());
  Optimizer optimizer(Parameters{weight}, options);
  const auto loss = weight.pow(2).sum();
  weight.mutable_grad() = torch::ones({2, 2});
  optimizer.step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

/// A parameter of equal values, with a gradient of equal values.
inline at::Tensor weight_with_gradient(at::IntArrayRef sizes, double value = 1, double gradient = 1) {
  const auto weight = torch::full(sizes, value, torch::requires_grad());
  weight.mutable_grad() = torch::full(sizes, gradient);
  return weight;
}

}  // namespace libtrain::test
