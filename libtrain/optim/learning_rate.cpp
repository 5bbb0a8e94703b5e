#include <libtrain/optim/learning_rate.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/optim/detail/option_checks.hpp>

namespace libtrain::optim {

namespace {

std::vector<double> present_rates(const torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void require_rates(const std::vector<double>& bases, const Schedule& schedule) {
  if (!schedule) throw UsageError("LearningRate was given an empty schedule. Give constant() for constant rates.");
  for (const double base : bases) detail::require_not_negative(base, "The base rate of LearningRate");
}

}  // namespace

LearningRate::LearningRate(torch::optim::Optimizer& optimizer, double base, Schedule schedule)
    : optimizer_(optimizer), schedule_(std::move(schedule)), bases_{base}, is_common_(true) {
  require_rates(bases_, schedule_);
  const auto rates = present_rates(optimizer_);
  if (std::ranges::adjacent_find(rates, std::not_equal_to<>{}) == rates.end()) return;
  throw UsageError(text("LearningRate was given one base rate for the optimizer's ", rates.size(),
                        " parameter groups, whose rates are ", join(rates, ", "),
                        ". Give a list of base rates, one for each group."));
}

LearningRate::LearningRate(torch::optim::Optimizer& optimizer, std::vector<double> bases, Schedule schedule)
    : optimizer_(optimizer), schedule_(std::move(schedule)), bases_(std::move(bases)) {
  require_rates(bases_, schedule_);
  require_base_of_each_group();
}

void LearningRate::require_base_of_each_group() const {
  const auto groups = optimizer_.param_groups().size();
  if (is_common_ || groups == bases_.size()) return;
  throw UsageError(text("LearningRate was given ", bases_.size(), " base rates, but the optimizer has ", groups,
                        " parameter groups. Give a base rate for each group: its rate when the factor is 1."));
}

void LearningRate::set(std::int64_t step) {
  require_base_of_each_group();
  const auto factor = schedule_(step);
  detail::require_not_negative(factor, text("The schedule's factor of step ", step));
  for (const double base : bases_) {
    if (std::isfinite(base * factor)) continue;
    throw UsageError(text("The learning rate of step ", step, ", ", base, " times ", factor,
                          ", is not finite. Use a smaller base rate or factor."));
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
