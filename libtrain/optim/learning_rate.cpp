#include <libtrain/optim/learning_rate.hpp>

#include <cmath>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::optim {

LearningRate::LearningRate(torch::optim::Optimizer& optimizer, Schedule schedule)
    : optimizer_(optimizer), schedule_(std::move(schedule)) {
  if (!schedule_) throw UsageError("LearningRate was given no schedule.");
  for (const auto& group : optimizer_.param_groups()) bases_.push_back(group.options().get_lr());
}

void LearningRate::set(std::int64_t step) {
  auto& groups = optimizer_.param_groups();
  if (groups.size() != bases_.size()) {
    throw UsageError(text("The optimizer has ", groups.size(), " parameter groups and had ", bases_.size(),
                          " when its LearningRate was made: make that after the last group has been added."));
  }
  const auto factor = schedule_(step);
  if (!(factor >= 0) || !std::isfinite(factor)) {
    throw UsageError(
        text("The schedule gave ", factor, " for step ", step, "; a factor is a finite number, 0 or more."));
  }
  for (std::size_t group = 0; group < groups.size(); ++group) groups[group].options().set_lr(bases_[group] * factor);
}

double LearningRate::of_first_group() const {
  return optimizer_.param_groups().front().options().get_lr();
}

}  // namespace libtrain::optim
