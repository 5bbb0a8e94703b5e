#include <libtrain/optim/device_value.hpp>

#include <ATen/ops/full.h>

namespace libtrain::optim {

DeviceValue::operator double() const {
  return tensor_.defined() ? tensor_.item<double>() : value_;
}

at::Tensor DeviceValue::tensor() const {
  return tensor_.defined() ? tensor_.view(at::IntArrayRef{}).to(at::kDouble) : at::full({}, value_, at::kDouble);
}

FiniteCheck::operator bool() const {
  return found_inf_.defined() ? found_inf_.item<float>() == 0 : finite_;
}

at::Tensor FiniteCheck::found_inf() const {
  return found_inf_.defined() ? found_inf_ : at::full({}, finite_ ? 0 : 1, at::kFloat);
}

}  // namespace libtrain::optim
