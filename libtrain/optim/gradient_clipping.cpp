#include <libtrain/optim/gradient_clipping.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <unordered_set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/tensor_checks.hpp>
#include <libtrain/numeric/detail/elements.hpp>
#include <libtrain/numeric/detail/norm.hpp>
#include <libtrain/optim/detail/unscale.hpp>

namespace libtrain::optim {

namespace {

using libtrain::detail::Maximum;
using Gradients = std::vector<std::vector<at::Tensor>>;

// The contribution of a gradient on the host.
double part_of_norm(const at::Tensor& gradient, double norm) {
  const auto dense = gradient.is_non_overlapping_and_dense() ? gradient : gradient.contiguous();
  const void* const data = dense.const_data_ptr();
  const auto count = static_cast<std::size_t>(dense.numel());
  const auto type = libtrain::detail::data_type_of(dense.scalar_type()).value();
  if (norm == 2) return libtrain::detail::sum_of_squares(data, count, type);
  if (norm == 1) return libtrain::detail::sum_of_magnitudes(data, count, type);
  return libtrain::detail::largest_magnitude(data, count, type);
}

double norm_on_host(const Gradients& groups, double norm) {
  double total = 0;
  const auto add = [&](double part) { total = std::isinf(norm) ? Maximum::combine(total, part) : total + part; };
  for (const auto& group : groups) {
    if (!group.front().is_cpu()) continue;
    for (const auto& gradient : group) add(part_of_norm(gradient, norm));
  }
  return norm == 2 ? std::sqrt(total) : total;
}

// The norm of a vector of norms, without dimensions: in float64, where squares of large ones do not overflow.
at::Tensor norm_of_norms(const std::vector<at::Tensor>& norms, double norm) {
  return at::linalg_vector_norm(at::stack(norms), norm, std::nullopt, false, at::kDouble);
}

DeviceValue norm_of(const Gradients& groups, double norm) {
  std::vector<at::Tensor> norms;
  bool any_on_host = false;
  for (const auto& group : groups) {
    if (group.front().is_cpu()) {
      any_on_host = true;
      continue;
    }
    const auto type = group.front().scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    norms.push_back(norm_of_norms(at::_foreach_norm(group, norm, type), norm));
    norms.back() = norms.back().to(norms.front().device(), /*non_blocking=*/true);
  }
  if (norms.empty()) return norm_on_host(groups, norm);
  if (any_on_host) norms.push_back(at::full({}, norm_on_host(groups, norm), norms.front().options()));
  return DeviceValue{norms.size() == 1 ? norms.front() : norm_of_norms(norms, norm)};
}

void check_norm(double norm) {
  if (norm != 1 && norm != 2 && !(std::isinf(norm) && norm > 0)) {
    throw UsageError(text("The norm of gradients has exponent ", norm, "; use 1, 2 or infinity."));
  }
}

[[noreturn]] void throw_non_finite(const std::vector<at::Tensor>& parameters, double norm) {
  std::string cause = "each gradient is finite, but their norm is not";
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const auto& gradient = parameters[index].grad();
    if (!gradient.defined() || at::isfinite(gradient).all().item<bool>()) continue;
    cause = text("the gradient of parameter ", index, " of ", parameters.size(), ", of shape ", gradient.sizes(),
                 ", is the first with NaN or infinity");
    break;
  }
  throw UsageError(text("The norm of the gradients is ", norm, ": ", cause,
                        ". Lower the learning rate or the loss scale, check the data of this step, or skip the step "
                        "(NonFinite::skipped, LossScaler)."));
}

}  // namespace

DeviceValue gradient_norm(const std::vector<at::Tensor>& parameters, double norm) {
  check_norm(norm);
  const at::NoGradGuard no_grad;
  return norm_of(detail::group_gradients(parameters), norm);
}

DeviceValue clip_gradients(const std::vector<at::Tensor>& parameters, const ClippingOptions& options) {
  check_norm(options.norm);
  if (!(options.max_norm > 0)) {
    throw UsageError(text("ClippingOptions::max_norm is ", options.max_norm, "; it must be more than 0."));
  }
  const at::NoGradGuard no_grad;
  const auto groups = detail::group_gradients(parameters);
  const auto norm = norm_of(groups, options.norm);
  if (options.error_if_non_finite && !std::isfinite(norm)) throw_non_finite(parameters, norm);
  if (norm.is_on_device()) {
    const auto coefficient = norm.tensor().add(1e-6).reciprocal_().mul_(options.max_norm).clamp_max_(1);
    for (const auto& group : groups) {
      detail::multiply(group, coefficient.to(group.front().device(), /*non_blocking=*/!group.front().is_cpu()));
    }
    return norm;
  }
  const double coefficient = options.max_norm / (norm + 1e-6);
  if (coefficient >= 1) return norm;
  for (const auto& group : groups) at::_foreach_mul_(group, coefficient);
  return norm;
}

}  // namespace libtrain::optim

namespace libtrain::optim::detail {

namespace {

void require_dense(const at::Tensor& gradient, std::size_t index, std::size_t count) {
  const auto type = gradient.scalar_type();
  const bool floating = type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
  if (floating && gradient.layout() == at::kStrided) return;
  throw UsageError(text("The gradient of parameter ", index, " of ", count, ", of shape ", gradient.sizes(), ", is ",
                        gradient.layout() == at::kStrided ? "dense" : "sparse", " and of dtype ", type,
                        "; it must be dense and of dtype float16, bfloat16, float32 or float64."));
}

}  // namespace

std::vector<std::vector<at::Tensor>> group_gradients(const std::vector<at::Tensor>& parameters) {
  std::vector<std::vector<at::Tensor>> groups;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const auto& parameter = parameters[index];
    if (!parameter.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    const auto& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    require_dense(gradient, index, parameters.size());
    if (gradient.numel() == 0) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const std::vector<at::Tensor>& others) {
      return others.front().device() == gradient.device() && others.front().scalar_type() == gradient.scalar_type();
    });
    if (group == groups.end()) group = groups.emplace(groups.end());
    group->push_back(gradient);
  }
  return groups;
}

}  // namespace libtrain::optim::detail
