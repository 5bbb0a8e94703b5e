#include <libtrain/numeric/detail/optimizer_steps.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/numeric/random_values.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::detail {
namespace {

using test::message_of;
using test::random_values;
using ::testing::HasSubstr;

constexpr std::size_t kCounts[] = {0, 1, 7, 63, 64, 65, 1037};

// A product that no compiler can fuse with the sum it goes into.
template <typename T>
T product(T left, T right) {
  volatile T result = left * right;
  return result;
}

// The library's power, as in the kernels, which a compiler's own at compile time may differ from.
double power(double base, double exponent) {
  const volatile double opaque = base;
  return std::pow(opaque, exponent);
}

/// Parameters and state of one tensor.
template <typename T>
struct Values {
  std::vector<T> parameter;
  std::vector<T> first;
  std::vector<T> second;
  explicit Values(std::size_t count) : parameter(random_values<T>(count, 1)), first(count), second(count) {}
  bool operator==(const Values&) const = default;
};

template <typename T>
void loop_sgd(Values<T>& values, const std::vector<T>& gradient, const SgdStep& step) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const T decayed = gradient[i] + product(static_cast<T>(step.weight_decay), values.parameter[i]);
    T update = decayed;
    if (step.momentum != 0) {
      const auto momentum = static_cast<T>(step.momentum);
      const auto gain = static_cast<T>(1 - step.dampening);
      auto& buffer = values.first[i];
      buffer = step.first ? decayed : product(momentum, buffer) + product(gain, decayed);
      update = step.nesterov ? decayed + product(momentum, buffer) : buffer;
    }
    values.parameter[i] -= product(static_cast<T>(step.learning_rate), update);
  }
}

template <typename T>
void loop_moments(Values<T>& values, const std::vector<T>& gradient, const AdamWStep& step) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    values.first[i] =
        product(static_cast<T>(step.beta1), values.first[i]) + product(static_cast<T>(1 - step.beta1), gradient[i]);
    values.second[i] = product(static_cast<T>(step.beta2), values.second[i]) +
                       product(product(static_cast<T>(1 - step.beta2), gradient[i]), gradient[i]);
  }
}

// What AdamW and LAMB subtract, times `scale`, from the moments.
template <typename T>
T loop_direction(T first, T second, const AdamWStep& step, double scale) {
  const auto number = static_cast<double>(step.step);
  const auto factor = static_cast<T>(scale / (1 - power(step.beta1, number)));
  const auto correction = static_cast<T>(std::sqrt(1 - power(step.beta2, number)));
  return product(factor, first) / (std::sqrt(second) / correction + static_cast<T>(step.epsilon));
}

template <typename T>
void loop_adamw(Values<T>& values, const std::vector<T>& gradient, const AdamWStep& step) {
  loop_moments(values, gradient, step);
  const auto shrink = static_cast<T>(1 - step.learning_rate * step.weight_decay);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    values.parameter[i] = product(shrink, values.parameter[i]) -
                          loop_direction(values.first[i], values.second[i], step, step.learning_rate);
  }
}

template <typename T>
void loop_lars(Values<T>& values, const std::vector<T>& gradient, const LarsStep& step) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const T decayed = gradient[i] + product(static_cast<T>(step.weight_decay), values.parameter[i]);
    auto& velocity = values.first[i];
    velocity = product(static_cast<T>(step.momentum), velocity) + product(static_cast<T>(step.rate), decayed);
    values.parameter[i] -= velocity;
  }
}

template <typename T>
std::vector<T> loop_lamb(Values<T>& values, const std::vector<T>& gradient, const AdamWStep& step, double trust) {
  loop_moments(values, gradient, step);
  std::vector<T> updates;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    auto& parameter = values.parameter[i];
    updates.push_back(loop_direction(values.first[i], values.second[i], step, 1) +
                      product(static_cast<T>(step.weight_decay), parameter));
    parameter -= product(static_cast<T>(step.learning_rate * trust), updates.back());
  }
  return updates;
}

template <typename T>
double loop_squares(const std::vector<T>& values) {
  long double sum = 0;
  for (const auto value : values) sum += static_cast<long double>(value) * static_cast<long double>(value);
  return static_cast<double>(sum);
}

std::vector<SgdStep> sgd_steps() {
  return {{.learning_rate = 0.1},
          {.learning_rate = 0.1, .weight_decay = 0.01},
          {.learning_rate = 0.1, .momentum = 0.9},
          {.learning_rate = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01},
          {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}};
}

// A product that is fused with its sum in the kernels shows as a difference in the last bit: are
// numeric/sgd_steps.cpp and numeric/adam_steps.cpp still compiled with -ffp-contract=off?
template <typename T>
void expect_sgd_like_a_loop() {
  for (auto step : sgd_steps()) {
    for (const auto count : kCounts) {
      Values<T> actual(count);
      auto expected = actual;
      // The kernel must not read a buffer that holds nothing yet.
      for (auto& value : actual.first) value = std::numeric_limits<T>::quiet_NaN();
      if (step.momentum == 0) actual.first = expected.first;
      for (unsigned number = 0; number < 3; ++number) {
        const auto gradient = random_values<T>(count, 10 + number);
        step.first = number == 0;
        loop_sgd(expected, gradient, step);
        sgd_update(actual.parameter.data(), gradient.data(), step.momentum == 0 ? nullptr : actual.first.data(), count,
                   step);
        EXPECT_TRUE(actual == expected) << count << " elements, step " << number;
      }
    }
  }
}

TEST(OptimizerSteps, SgdHasTheBitsOfAScalarLoop) {
  expect_sgd_like_a_loop<float>();
  expect_sgd_like_a_loop<double>();
}

template <typename T>
void expect_adamw_like_a_loop() {
  for (const auto count : kCounts) {
    Values<T> actual(count);
    auto expected = actual;
    for (unsigned number = 1; number <= 3; ++number) {
      const auto gradient = random_values<T>(count, 10 + number);
      const AdamWStep step{.learning_rate = 0.01, .weight_decay = 0.1, .step = number};
      loop_adamw(expected, gradient, step);
      adamw_update(actual.parameter.data(), gradient.data(), actual.first.data(), actual.second.data(), count, step);
      EXPECT_TRUE(actual == expected) << count << " elements, step " << number;
    }
  }
}

TEST(OptimizerSteps, AdamWHasTheBitsOfAScalarLoop) {
  expect_adamw_like_a_loop<float>();
  expect_adamw_like_a_loop<double>();
}

template <typename T>
void expect_lars_like_a_loop() {
  for (const auto count : kCounts) {
    Values<T> actual(count);
    auto expected = actual;
    for (unsigned number = 0; number < 3; ++number) {
      const auto gradient = random_values<T>(count, 10 + number);
      const LarsStep step{.rate = 0.01, .momentum = 0.9, .weight_decay = 0.1};
      loop_lars(expected, gradient, step);
      lars_update(actual.parameter.data(), gradient.data(), actual.first.data(), count, step);
      EXPECT_TRUE(actual == expected) << count << " elements, step " << number;
    }
  }
}

TEST(OptimizerSteps, LarsHasTheBitsOfAScalarLoop) {
  expect_lars_like_a_loop<float>();
  expect_lars_like_a_loop<double>();
}

template <typename T>
void expect_lamb_like_a_loop() {
  for (const auto count : kCounts) {
    Values<T> actual(count);
    auto expected = actual;
    for (unsigned number = 1; number <= 3; ++number) {
      const auto gradient = random_values<T>(count, 10 + number);
      const AdamWStep step{.learning_rate = 0.01, .weight_decay = 0.1, .step = number};
      const auto squares_before = loop_squares(expected.parameter);
      const auto updates = loop_lamb(expected, gradient, step, 0.5);
      const auto sums = lamb_moments(actual.parameter.data(), gradient.data(), actual.first.data(),
                                     actual.second.data(), count, step);
      lamb_update(actual.parameter.data(), actual.first.data(), actual.second.data(), count, step, 0.5);
      EXPECT_TRUE(actual == expected) << count << " elements, step " << number;
      EXPECT_NEAR(sums.parameter, squares_before, 1e-13 * squares_before);
      EXPECT_NEAR(sums.update, loop_squares(updates), 1e-13 * loop_squares(updates));
    }
  }
}

TEST(OptimizerSteps, LambHasTheBitsOfAScalarLoop) {
  expect_lamb_like_a_loop<float>();
  expect_lamb_like_a_loop<double>();
}

// Updates whole memory and slices of it, each by `update(values, gradient, begin, count)`.
template <typename T, typename Update>
void expect_same_in_slices(const Update& update) {
  constexpr std::size_t kCount = 1037;
  const auto gradient = random_values<T>(kCount, 3);
  Values<T> whole(kCount);
  whole.first = random_values<T>(kCount, 4);
  auto sliced = whole;
  update(whole, gradient, 0, kCount);
  std::size_t begin = 0;
  for (const std::size_t end : {1, 4, 67, 68, 500, 1036, 1037}) {
    update(sliced, gradient, begin, end - begin);
    begin = end;
  }
  EXPECT_TRUE(whole == sliced);
}

template <typename T>
void expect_kernels_same_in_slices() {
  using Vector = std::vector<T>;
  for (const auto& step : sgd_steps()) {
    expect_same_in_slices<T>([&](Values<T>& values, const Vector& gradient, std::size_t begin, std::size_t count) {
      sgd_update(values.parameter.data() + begin, gradient.data() + begin, values.first.data() + begin, count, step);
    });
  }
  const AdamWStep step{.learning_rate = 0.01, .step = 5};
  expect_same_in_slices<T>([&](Values<T>& values, const Vector& gradient, std::size_t begin, std::size_t count) {
    adamw_update(values.parameter.data() + begin, gradient.data() + begin, values.first.data() + begin,
                 values.second.data() + begin, count, step);
  });
  expect_same_in_slices<T>([&](Values<T>& values, const Vector& gradient, std::size_t begin, std::size_t count) {
    lamb_moments(values.parameter.data() + begin, gradient.data() + begin, values.first.data() + begin,
                 values.second.data() + begin, count, step);
    lamb_update(values.parameter.data() + begin, values.first.data() + begin, values.second.data() + begin, count, step,
                0.5);
  });
}

TEST(OptimizerSteps, SlicesHaveTheBitsOfTheWhole) {
  expect_kernels_same_in_slices<float>();
  expect_kernels_same_in_slices<double>();
}

// In the first step the corrected moments are the gradient and its square: the step is the rate, whatever the gradient.
TEST(OptimizerSteps, AdamWsFirstStepIsAsLongAsItsRate) {
  std::vector<double> parameter{1, 1, 1};
  const std::vector<double> gradient{1e-3, -5, 700};
  std::vector<double> first(3);
  std::vector<double> second(3);
  adamw_update(parameter.data(), gradient.data(), first.data(), second.data(), 3,
               {.learning_rate = 0.25, .epsilon = 0, .weight_decay = 0});
  EXPECT_NEAR(parameter[0], 0.75, 1e-12);
  EXPECT_NEAR(parameter[1], 1.25, 1e-12);
  EXPECT_NEAR(parameter[2], 0.75, 1e-12);
}

TEST(OptimizerSteps, MisuseIsNamed) {
  float value = 1;
  const float gradient = 1;
  const SgdStep sgd{.learning_rate = 0.1, .momentum = 0.5};
  EXPECT_THAT(message_of<UsageError>([&] { sgd_update(&value, &gradient, nullptr, 1, sgd); }),
              HasSubstr("sgd_update with momentum 0.5 was given no buffer"));
  const LarsStep lars{.rate = 0.1, .momentum = 0.5};
  EXPECT_THROW(lars_update(&value, &gradient, nullptr, 1, lars), UsageError);
  float first = 0;
  float second = 0;
  const AdamWStep adamw{.step = 0};
  EXPECT_THAT(message_of<UsageError>([&] { adamw_update(&value, &gradient, &first, &second, 1, adamw); }),
              HasSubstr("AdamWStep::step is 0"));
  EXPECT_EQ(value, 1.0f);
}

}  // namespace
}  // namespace libtrain::detail
