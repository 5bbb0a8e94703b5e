#include <libtrain/optim/learning_rate.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::optim {

namespace {

bool is_rate(double value) {
  return value >= 0 && std::isfinite(value);
}

std::vector<double> present_rates(const torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void require_rates(const std::vector<double>& bases, const Schedule& schedule) {
  if (!schedule) throw UsageError("LearningRate was given no schedule.");
  for (const double base : bases) {
    if (is_rate(base)) continue;
    throw UsageError(text("LearningRate was given the base rate ", base, "; it must be a finite number, 0 or more."));
  }
}

}  // namespace

LearningRate::LearningRate(torch::optim::Optimizer& optimizer, double base, Schedule schedule)
    : optimizer_(optimizer), schedule_(std::move(schedule)), bases_{base}, is_common_(true) {
  require_rates(bases_, schedule_);
  const auto rates = present_rates(optimizer_);
  if (std::ranges::adjacent_find(rates, std::not_equal_to<>{}) == rates.end()) return;
  throw UsageError(text("LearningRate was given one base rate for the optimizer's ", rates.size(),
                        " parameter groups, whose rates are ", join(rates, ", "),
                        ": give a list of bases, one for each group."));
}

LearningRate::LearningRate(torch::optim::Optimizer& optimizer, std::vector<double> bases, Schedule schedule)
    : optimizer_(optimizer), schedule_(std::move(schedule)), bases_(std::move(bases)) {
  require_rates(bases_, schedule_);
  require_base_of_each_group();
}

void LearningRate::require_base_of_each_group() const {
  const auto groups = optimizer_.param_groups().size();
  if (is_common_ || groups == bases_.size()) return;
  throw UsageError(text("LearningRate was given ", bases_.size(), " base rates, and the optimizer has ", groups,
                        " parameter groups: give a base for each group, that is its rate where the factor is 1."));
}

void LearningRate::set(std::int64_t step) {
  require_base_of_each_group();
  const auto factor = schedule_(step);
  if (!is_rate(factor)) {
    throw UsageError(
        text("The schedule gave ", factor, " for step ", step, "; a factor is a finite number, 0 or more."));
  }
  for (const double base : bases_) {
    if (is_rate(base * factor)) continue;
    throw UsageError(text("The learning rate of step ", step, ", ", base, " times ", factor, ", is not finite."));
  }
  auto& groups = optimizer_.param_groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    groups[group].options().set_lr(bases_[is_common_ ? 0 : group] * factor);
  }
}

double LearningRate::of_first_group() const {
  return optimizer_.param_groups().front().options().get_lr();
}

}  // namespace libtrain::optim
