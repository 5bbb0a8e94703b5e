#include <libtrain/optim/moving_average.hpp>

#include <algorithm>
#include <cstddef>
#include <map>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/empty_like.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/optim/detail/step_recording.hpp>

namespace libtrain::optim {

namespace {

// The dtype of a tensor's average: a 16-bit one cannot change by a ten-thousandth of itself.
at::ScalarType average_type(at::ScalarType type) {
  return c10::isReducedFloatingType(type) ? at::kFloat : type;
}

bool is_averaged(const at::Tensor& average) {
  return average.is_floating_point() || average.is_complex();
}

std::string describe(const std::string& name, const at::Tensor& tensor) {
  return text("'", name, "' of shape ", tensor.sizes(), " and dtype ", tensor.scalar_type());
}

std::string describe(const NamedTensors& tensors, std::size_t index) {
  if (index >= tensors.size()) return text("nothing (of ", tensors.size(), " tensors)");
  return describe(tensors[index].first, tensors[index].second);
}

bool fits(const at::Tensor& average, const at::Tensor& tensor) {
  return average.sizes() == tensor.sizes() && average.scalar_type() == average_type(tensor.scalar_type());
}

// Averages and values of one device and of one dtype each, as multi-tensor operators require.
struct Lists {
  bool takes(const at::Tensor& average, const at::Tensor& value) const {
    return averages.front().device() == average.device() && averages.front().scalar_type() == average.scalar_type() &&
           values.front().scalar_type() == value.scalar_type();
  }

  void add(const at::Tensor& average, const at::Tensor& value) {
    averages.push_back(average);
    values.push_back(value);
  }

  void update(double weight) const {
    if (!is_averaged(averages.front())) {
      at::_foreach_copy_(averages, values, /*non_blocking=*/true);
    } else if (averages.front().scalar_type() == values.front().scalar_type()) {
      at::_foreach_lerp_(averages, values, weight);
    } else {
      std::vector<at::Tensor> wide;
      for (const auto& average : averages) wide.push_back(at::empty_like(average));
      at::_foreach_copy_(wide, values);
      at::_foreach_lerp_(averages, wide, weight);
    }
  }

  std::vector<at::Tensor> averages;
  std::vector<at::Tensor> values;
};

Lists& lists_of(std::vector<Lists>& lists, const at::Tensor& average, const at::Tensor& value) {
  const auto found = std::ranges::find_if(lists, [&](const Lists& other) { return other.takes(average, value); });
  return found == lists.end() ? lists.emplace_back() : *found;
}

// In place: modules share parameters, and parameters may be views of other memory.
void copy_values(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to) {
  const at::NoGradGuard no_grad;
  for (std::size_t index = 0; index < to.size(); ++index) to[index].copy_(from[index]);
  at::autocast::clear_cache();  // which may have casts of the former values, and finds them by the tensor alone
}

std::vector<at::Tensor> without_names(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& entry : named) tensors.push_back(entry.second);
  return tensors;
}

}  // namespace

MovingAverage::MovingAverage(const torch::nn::Module& module, const MovingAverageOptions& options) : options_(options) {
  if (!(options.decay >= 0 && options.decay < 1)) {
    throw UsageError(text("MovingAverageOptions::decay is ", options.decay, "; it must be 0 or more and less than 1."));
  }
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : optim::named_tensors(module)) {
    tensors_.emplace_back(name, tensor.detach().to(average_type(tensor.scalar_type()), /*non_blocking=*/false,
                                                   /*copy=*/true));
  }
}

void MovingAverage::update(const torch::nn::Module& module) {
  require_not_swapped("update");
  if (options_.warm_up && detail::StepRecording::is_under_way()) {
    throw UsageError(
        "MovingAverage::update() was called while a step is recorded into a graph, whose replays would repeat its "
        "decay, which MovingAverageOptions::warm_up changes in each update. Call update() after StepGraph::step(), or "
        "leave warm_up false.");
  }
  const auto tensors = optim::named_tensors(module);
  require_same(tensors);
  const at::NoGradGuard no_grad;
  const auto past = static_cast<double>(updates_);
  const double decay = options_.warm_up ? std::min(options_.decay, (1 + past) / (10 + past)) : options_.decay;
  std::vector<Lists> lists;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    const auto& average = tensors_[index].second;
    const auto& value = tensors[index].second;
    if (average.device() != value.device()) {
      throw UsageError(text("The moving average of '", tensors[index].first, "' is on ", average.device(),
                            " and the module's tensor on ", value.device(),
                            ". Create the MovingAverage after the module has been moved."));
    }
    lists_of(lists, average, value).add(average, value);
  }
  for (const auto& list : lists) list.update(1 - decay);
  ++updates_;
}

MovingAverage::Swap MovingAverage::swap(torch::nn::Module& module) {
  require_not_swapped("swap");
  const auto tensors = optim::named_tensors(module);
  require_same(tensors);
  const at::NoGradGuard no_grad;
  Swap swap;
  // All are saved before the first is overwritten: a tensor may have several names.
  for (const auto& entry : tensors) swap.saved_.push_back(entry.second.detach().clone());
  swap.tensors_ = without_names(tensors);
  swap.swapped_ = swapped_;
  *swapped_ = true;
  copy_values(without_names(tensors_), swap.tensors_);
  return swap;
}

void MovingAverage::copy_to(torch::nn::Module& module) const {
  const auto tensors = optim::named_tensors(module);
  require_same(tensors);
  copy_values(without_names(tensors_), without_names(tensors));
}

void MovingAverage::load(const NamedTensors& tensors, std::int64_t updates) {
  if (updates < 0) throw UsageError(text("A moving average cannot have ", updates, " updates. Load 0 or more."));
  std::map<std::string, at::Tensor> given(tensors.begin(), tensors.end());
  std::vector<at::Tensor> values;
  constexpr auto kAdvice = ". Load the state of a moving average of the same module.";
  for (const auto& [name, average] : tensors_) {
    const auto found = given.find(name);
    if (found == given.end()) {
      throw UsageError(text("The loaded state has no ", describe(name, average), kAdvice));
    }
    const auto value = found->second;
    given.erase(found);
    if (!value.defined() || value.sizes() != average.sizes() || value.scalar_type() != average.scalar_type()) {
      throw UsageError(text("The moving average has ", describe(name, average), ", but the loaded state has ",
                            value.defined() ? describe(name, value) : text("an undefined tensor"), kAdvice));
    }
    values.push_back(value);
  }
  if (!given.empty()) {
    throw UsageError(
        text("The loaded state has a tensor '", given.begin()->first, "' that the module does not have", kAdvice));
  }
  copy_values(values, without_names(tensors_));
  updates_ = updates;
}

void MovingAverage::require_same(const NamedTensors& tensors) const {
  for (std::size_t index = 0; index < std::max(tensors.size(), tensors_.size()); ++index) {
    if (index < tensors.size() && index < tensors_.size() && tensors[index].first == tensors_[index].first &&
        fits(tensors_[index].second, tensors[index].second)) {
      continue;
    }
    throw UsageError(text("The moving average belongs to another module: it has ", describe(tensors_, index),
                          ", but the module has ", describe(tensors, index),
                          ". Use a module of the same structure as the one that it was created from."));
  }
}

void MovingAverage::require_not_swapped(const char* call) const {
  if (!*swapped_) return;
  throw UsageError(text("MovingAverage::", call,
                        " was called while the average is swapped into a module. Destroy the Swap or call its "
                        "swap_back() first."));
}

MovingAverage::Swap::~Swap() {
  try {
    swap_back();
  } catch (...) {
    // Only a failed device refuses a copy, and its next use reports the error.
  }
}

void MovingAverage::Swap::swap_back() {
  if (!swapped_) return;
  const auto swapped = std::exchange(swapped_, nullptr);
  copy_values(saved_, tensors_);
  tensors_.clear();
  saved_.clear();
  *swapped = false;
}

}  // namespace libtrain::optim
