#include <libtrain/optim/detail/device_update.hpp>

#include <algorithm>
#include <memory>
#include <unordered_map>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <libtrain/optim/detail/step_recording.hpp>
#include <libtrain/optim/detail/trust_ratio.hpp>

namespace libtrain::optim::detail {

namespace {

// A multiple of what vectorised kernels load at once; short enough that small tensors waste little.
constexpr std::int64_t kRowElements = 512;

void require_not_recording(bool recording) {
  if (!recording) return;
  throw UsageError(
      "A step that is being recorded would create optimizer state, for a parameter with its first gradient or after "
      "load(). Make a step with the same gradients before begin_recording().");
}

at::Tensor dense(const at::Tensor& parameter) {
  return parameter.is_non_overlapping_and_dense() ? parameter : at::empty_like(parameter).copy_(parameter);
}

at::Tensor in_layout_of(const at::Tensor& value, const at::Tensor& tensor) {
  return has_layout_of(tensor, value) ? tensor : at::empty_like(value).copy_(tensor, /*non_blocking=*/true);
}

DeviceAdamWState& adamw_state(OptimizerStates& states, const at::Tensor& parameter, bool recording) {
  auto& state = states[parameter.unsafeGetTensorImpl()];
  if (auto* on_device = dynamic_cast<DeviceAdamWState*>(state.get())) {
    if (on_device->device_step.device() == parameter.device()) return *on_device;
  }
  require_not_recording(recording);
  if (state) leave_device(state);
  auto created = std::make_unique<DeviceAdamWState>();
  if (state)
    static_cast<torch::optim::AdamWParamState&>(*created) = static_cast<torch::optim::AdamWParamState&>(*state);
  created->device_step = at::full({}, created->step(), at::TensorOptions(at::kFloat).device(parameter.device()));
  auto& result = *created;
  state = std::move(created);
  return result;
}

}  // namespace

FoundInf::FoundInf(const at::Tensor& found_inf) : given_(found_inf) {
  if (found_inf.defined() && found_inf.scalar_type() == at::kFloat && found_inf.numel() == 1) return;
  throw UsageError(text("step_unless() was given ",
                        found_inf.defined()
                            ? text("a tensor of dtype ", found_inf.scalar_type(), " and shape ", found_inf.sizes())
                            : text("an undefined tensor"),
                        "; found_inf must be one number of float32, such as FiniteCheck::found_inf() returns."));
}

std::optional<at::Tensor> FoundInf::on(const at::Device& device) {
  if (!given_.defined()) return std::nullopt;
  for (const auto& flag : flags_) {
    if (flag.device() == device) return flag;
  }
  const auto number = given_.detach().view(at::IntArrayRef{}).to(device, /*non_blocking=*/true);
  auto flag = at::empty({}, number.options());
  at::ne_out(flag, number, 0);
  return flags_.emplace_back(flag);
}

bool FoundInf::on_host() {
  if (!given_.defined()) return false;
  if (!on_host_) on_host_ = given_.item<float>() != 0;
  return *on_host_;
}

bool is_listed(const at::Tensor& parameter) {
  if (parameter.is_cpu() || parameter.layout() != at::kStrided) return false;
  const auto type = parameter.scalar_type();
  return (type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16);
}

std::vector<DeviceList> device_lists(const torch::optim::OptimizerParamGroup& group, std::string_view optimizer,
                                     SeenParameters& seen) {
  std::vector<DeviceList> lists;
  for (const auto& parameter : group.params()) {
    if (!is_listed(parameter) || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    const auto gradient = gradient_of(parameter, optimizer);
    if (!gradient.defined() || gradient.numel() == 0) continue;
    auto list = std::ranges::find_if(lists, [&](const DeviceList& other) {
      return other.device() == parameter.device() && other.type() == parameter.scalar_type();
    });
    if (list == lists.end()) list = lists.emplace(lists.end());
    list->parameters.push_back(parameter);
    list->values.push_back(dense(parameter));
    list->gradients.push_back(in_layout_of(list->values.back(), gradient));
  }
  return lists;
}

void finish_update(const DeviceList& list) {
  for (std::size_t index = 0; index < list.parameters.size(); ++index) {
    const auto& parameter = list.parameters[index];
    if (list.values[index].is_same(parameter)) {
      mark_changed(parameter);
    } else {
      parameter.copy_(list.values[index]);
    }
  }
}

void require_given_to_recording(bool recording) {
  if (recording || !StepRecording::is_under_way()) return;
  throw UsageError(
      "An optimizer that StepGraph was not given steps while a step is recorded into a graph, whose replays would "
      "repeat its present learning rate. Give it to StepGraph's constructor.");
}

void prepare_device_state(at::Tensor& state, const at::Tensor& value, bool recording) {
  if (state.defined() && state.sizes() == value.sizes() && has_layout_of(state, value)) return;
  require_not_recording(recording);
  prepare_state(state, value);
}

std::vector<DeviceAdamWState*> adamw_states(OptimizerStates& states, const DeviceList& list, bool amsgrad,
                                            bool recording) {
  std::vector<DeviceAdamWState*> found;
  for (std::size_t index = 0; index < list.parameters.size(); ++index) {
    auto& state = adamw_state(states, list.parameters[index], recording);
    prepare_device_state(state.exp_avg(), list.values[index], recording);
    prepare_device_state(state.exp_avg_sq(), list.values[index], recording);
    if (amsgrad) prepare_device_state(state.max_exp_avg_sq(), list.values[index], recording);
    found.push_back(&state);
  }
  return found;
}

AdamWLists begin_adamw_step(const std::vector<DeviceAdamWState*>& states, bool amsgrad,
                            const std::optional<at::Tensor>& found_inf) {
  AdamWLists lists;
  for (auto* state : states) {
    lists.first.push_back(state->exp_avg());
    lists.second.push_back(state->exp_avg_sq());
    if (amsgrad) lists.largest_second.push_back(state->max_exp_avg_sq());
    lists.steps.push_back(state->device_step);
  }
  if (found_inf) {
    at::_foreach_add_(lists.steps, at::rsub(*found_inf, 1));
  } else {
    at::_foreach_add_(lists.steps, 1);
  }
  return lists;
}

void read_device_steps(const OptimizerStates& states) {
  std::unordered_map<at::Device, std::vector<DeviceAdamWState*>> of_devices;
  for (const auto& entry : states) {
    auto* state = dynamic_cast<DeviceAdamWState*>(entry.second.get());
    if (state != nullptr) of_devices[state->device_step.device()].push_back(state);
  }
  for (const auto& entry : of_devices) {
    std::vector<at::Tensor> steps;
    for (const auto* state : entry.second) steps.push_back(state->device_step);
    const auto read = at::stack(steps).to(at::kCPU).to(at::kLong);
    for (std::size_t index = 0; index < entry.second.size(); ++index) {
      entry.second[index]->step(read.const_data_ptr<std::int64_t>()[index]);
    }
  }
}

void leave_device(std::unique_ptr<torch::optim::OptimizerParamState>& state) {
  auto* on_device = dynamic_cast<DeviceAdamWState*>(state.get());
  if (on_device == nullptr) return;
  on_device->step(static_cast<std::int64_t>(on_device->device_step.item<float>()));
  state = std::make_unique<torch::optim::AdamWParamState>(*on_device);
}

at::Tensor rate_tensor(const DeviceRates& rates, std::size_t group, double rate, const DeviceList& list) {
  if (rates.is_recording()) return rates.of(group, list.device());
  return at::full({}, rate, at::TensorOptions(norm_type(list.type())).device(list.device()));
}

at::Tensor evaluate(const torch::optim::Optimizer::LossClosure& closure) {
  if (!closure) return {};
  const c10::AutoGradMode with_grad(true);
  return closure();
}

ScaledTemporaries::ScaledTemporaries(const std::vector<at::Tensor>& like) {
  std::int64_t rows = 0;
  for (const auto& tensor : like) {
    row_counts_.push_back((tensor.numel() + kRowElements - 1) / kRowElements);
    rows += row_counts_.back();
  }
  rows_ = at::zeros({rows, kRowElements}, like.front().options());
  std::int64_t begin = 0;
  for (std::size_t index = 0; index < like.size(); ++index) {
    tensors_.push_back(rows_.as_strided(like[index].sizes(), like[index].strides(), begin));
    begin += row_counts_[index] * kRowElements;
  }
}

void ScaledTemporaries::scale(const std::vector<at::Tensor>& factors) {
  std::vector<at::Tensor> columns;
  for (std::size_t index = 0; index < factors.size(); ++index) {
    columns.push_back(factors[index].expand({row_counts_[index]}));
  }
  rows_.mul_(at::cat(columns).unsqueeze(1));
}

}  // namespace libtrain::optim::detail
