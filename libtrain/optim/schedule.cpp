#include <libtrain/optim/schedule.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/optim/detail/option_checks.hpp>

namespace libtrain::optim {

namespace {

void check_steps(std::int64_t steps, std::int64_t least, std::string_view what) {
  if (steps < least) throw UsageError(text(what, " is ", steps, "; it must be at least ", least, "."));
}

void check_positive(double value, std::string_view what) {
  if (!(value > 0) || !std::isfinite(value)) {
    throw UsageError(text(what, " is ", value, "; it must be a finite number above 0."));
  }
}

// 0 at the first step, 1 from the last step on.
double progress(std::int64_t step, std::int64_t steps) {
  return static_cast<double>(std::clamp<std::int64_t>(step, 0, steps)) / static_cast<double>(steps);
}

double checked_ranks(double learning_rate, int ranks) {
  detail::require_not_negative(learning_rate, "The learning rate");
  if (ranks < 1) {
    throw UsageError(
        text("Cannot scale a learning rate for ", ranks, " ranks; the number of ranks must be at least 1."));
  }
  return static_cast<double>(ranks);
}

}  // namespace

Schedule constant() {
  return [](std::int64_t /*step*/) { return 1.0; };
}

Schedule step_decay(const StepDecay& options) {
  check_steps(options.every, 1, "StepDecay::every");
  check_positive(options.factor, "StepDecay::factor");
  return [options](std::int64_t step) {
    return std::pow(options.factor, static_cast<double>(std::max<std::int64_t>(step, 0) / options.every));
  };
}

Schedule multi_step_decay(MultiStepDecay options) {
  check_positive(options.factor, "MultiStepDecay::factor");
  if (!std::ranges::is_sorted(options.milestones)) {
    throw UsageError(
        text("MultiStepDecay::milestones are ", join(options.milestones, ", "), "; they must be in ascending order."));
  }
  return [options = std::move(options)](std::int64_t step) {
    const auto next = std::ranges::upper_bound(options.milestones, std::max<std::int64_t>(step, 0));
    const auto passed = next - options.milestones.begin();
    return std::pow(options.factor, static_cast<double>(passed));
  };
}

Schedule cosine_decay(const CosineDecay& options) {
  check_steps(options.steps, 1, "CosineDecay::steps");
  detail::require_not_negative(options.final_factor, "CosineDecay::final_factor");
  return [options](std::int64_t step) {
    const auto share = (1 + std::cos(std::numbers::pi * progress(step, options.steps))) / 2;
    return options.final_factor + (1 - options.final_factor) * share;
  };
}

Schedule polynomial_decay(const PolynomialDecay& options) {
  check_steps(options.steps, 1, "PolynomialDecay::steps");
  check_positive(options.power, "PolynomialDecay::power");
  detail::require_not_negative(options.final_factor, "PolynomialDecay::final_factor");
  return [options](std::int64_t step) {
    const auto share = std::pow(1 - progress(step, options.steps), options.power);
    return options.final_factor + (1 - options.final_factor) * share;
  };
}

Schedule warm_up(const WarmUp& options, Schedule then) {
  check_steps(options.steps, 0, "WarmUp::steps");
  detail::require_not_negative(options.first_factor, "WarmUp::first_factor");
  if (!then)
    throw UsageError("warm_up() was given an empty schedule. Give constant() for a rate that does not change.");
  const double reached = then(options.steps);
  detail::require_not_negative(reached, text("The factor of warm_up()'s schedule at step ", options.steps));
  if (options.steps > 0 && options.first_factor < then(0) && reached <= options.first_factor) {
    throw UsageError(text("WarmUp::steps is ", options.steps, ", but at that step the schedule after the warm-up has ",
                          "already decayed to a factor of ", reached, ". Use fewer warm-up steps."));
  }
  return [options, reached, then = std::move(then)](std::int64_t step) {
    step = std::max<std::int64_t>(step, 0);
    if (step >= options.steps) return then(step);
    return std::lerp(options.first_factor, reached, progress(step, options.steps));
  };
}

Schedule by_epoch(Schedule epochs, std::int64_t steps_per_epoch) {
  check_steps(steps_per_epoch, 1, "steps_per_epoch of by_epoch()");
  if (!epochs)
    throw UsageError("by_epoch() was given an empty schedule. Give constant() for a rate that does not change.");
  return [steps_per_epoch, epochs = std::move(epochs)](std::int64_t step) {
    return epochs(std::max<std::int64_t>(step, 0) / steps_per_epoch);
  };
}

double scaled_linearly(double learning_rate, int ranks) {
  return learning_rate * checked_ranks(learning_rate, ranks);
}

double scaled_by_square_root(double learning_rate, int ranks) {
  return learning_rate * std::sqrt(checked_ranks(learning_rate, ranks));
}

}  // namespace libtrain::optim
