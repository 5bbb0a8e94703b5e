#include <libtrain/optim/device_optimizer.hpp>

#include <algorithm>

#include <ATen/ops/full.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::optim {

void DeviceRates::begin_recording(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  refresh(groups);
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const auto& parameter : groups[group].params()) {
      const auto device = parameter.device();
      if (parameter.is_cpu() || std::ranges::any_of(rates_, [&](const Rate& rate) {
            return rate.group == group && rate.tensor.device() == device;
          })) {
        continue;
      }
      const auto value = groups[group].options().get_lr();
      rates_.push_back({group, value, at::full({}, value, at::TensorOptions(at::kFloat).device(device))});
    }
  }
  recording_ = true;
}

void DeviceRates::refresh(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  for (auto& rate : rates_) {
    const auto value = groups.at(rate.group).options().get_lr();
    if (value == rate.value) continue;
    rate.tensor.fill_(value);
    rate.value = value;
  }
}

at::Tensor DeviceRates::of(std::size_t group, const at::Device& device) const {
  for (const auto& rate : rates_) {
    if (rate.group == group && rate.tensor.device() == device) return rate.tensor;
  }
  throw UsageError(text("Parameter group ", group, " had no parameter on ", device,
                        " when the recording began. Add and move parameters before begin_recording()."));
}

}  // namespace libtrain::optim
