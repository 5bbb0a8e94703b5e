#include <libtrain/optim/parameter_groups.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/optim/detail/option_checks.hpp>

namespace libtrain::optim {

namespace {

struct NamedParameter {
  at::Tensor tensor;
  std::vector<std::string> names;  // several if modules share it
};

std::vector<NamedParameter> distinct_parameters(const torch::nn::Module& module) {
  std::vector<NamedParameter> parameters;
  std::unordered_map<const c10::TensorImpl*, std::size_t> places;
  for (const auto& item : module.named_parameters()) {
    const auto [place, is_new] = places.emplace(item.value().unsafeGetTensorImpl(), parameters.size());
    if (is_new) parameters.push_back({item.value(), {}});
    parameters[place->second].names.push_back(item.key());
  }
  return parameters;
}

bool selects(std::string_view prefix, std::string_view name) {
  if (prefix.ends_with('.')) prefix.remove_suffix(1);
  if (!name.starts_with(prefix)) return false;
  return prefix.empty() || prefix.size() == name.size() || name[prefix.size()] == '.';
}

bool selects(std::string_view prefix, const NamedParameter& parameter) {
  return std::ranges::any_of(parameter.names, [&](const std::string& name) { return selects(prefix, name); });
}

void require_selection(std::string_view prefix, const std::vector<NamedParameter>& parameters) {
  if (std::ranges::any_of(parameters, [&](const auto& parameter) { return selects(prefix, parameter); })) return;
  std::vector<std::string> parts;
  for (const auto& parameter : parameters) {
    for (const auto& name : parameter.names) {
      const auto part = name.substr(0, name.find('.'));
      if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
    }
  }
  throw UsageError(text("The module has no parameter '", prefix, "' and none whose name begins with '", prefix,
                        prefix.ends_with('.') ? "" : ".", "'. Its parameters are in: ", join(parts, ", "), "."));
}

double rate_factor_of(const NamedParameter& parameter, const std::vector<RateFactor>& factors) {
  const RateFactor* best = nullptr;
  for (const auto& factor : factors) {
    if (selects(factor.prefix, parameter) && (!best || factor.prefix.size() > best->prefix.size())) best = &factor;
  }
  return best ? best->factor : 1;
}

void check_division(const ParameterGroupOptions& division, const std::vector<NamedParameter>& parameters) {
  if (parameters.empty()) throw UsageError("The module has no parameters to divide into groups. Check the module.");
  for (const auto& prefix : division.without_decay) require_selection(prefix, parameters);
  std::set<std::string> prefixes;
  for (const auto& [prefix, factor] : division.rate_factors) {
    require_selection(prefix, parameters);
    detail::require_not_negative(factor, text("The rate factor of '", prefix, "'"));
    if (!prefixes.insert(prefix.substr(0, prefix.find_last_not_of('.') + 1)).second) {
      throw UsageError(text("The parameters '", prefix, "' have two rate factors. Remove one of them."));
    }
  }
}

void set_trained(torch::nn::Module& module, const std::vector<std::string>& prefixes, bool is_trained) {
  const auto parameters = distinct_parameters(module);
  for (const auto& prefix : prefixes) require_selection(prefix, parameters);
  for (const auto& parameter : parameters) {
    if (std::ranges::none_of(prefixes, [&](const auto& prefix) { return selects(prefix, parameter); })) continue;
    parameter.tensor.requires_grad_(is_trained);
    // An optimizer would go on to apply it.
    if (!is_trained) parameter.tensor.mutable_grad().reset();
  }
}

}  // namespace

std::vector<detail::ParameterGroup> detail::divide_parameters(const torch::nn::Module& module,
                                                              const ParameterGroupOptions& division, double rate,
                                                              double weight_decay) {
  const auto parameters = distinct_parameters(module);
  require_not_negative(rate, "The learning rate");
  require_not_negative(weight_decay, "The weight decay");
  check_division(division, parameters);
  std::map<std::pair<double, double>, std::vector<at::Tensor>, std::greater<>> by_options;
  for (const auto& parameter : parameters) {
    const bool decays =
        (division.decay_one_dimensional || parameter.tensor.dim() > 1) &&
        std::ranges::none_of(division.without_decay, [&](const auto& prefix) { return selects(prefix, parameter); });
    const std::pair options{rate * rate_factor_of(parameter, division.rate_factors), decays ? weight_decay : 0.0};
    by_options[options].push_back(parameter.tensor);
  }
  std::vector<ParameterGroup> groups;
  for (auto& [options, members] : by_options) {
    groups.push_back({.parameters = std::move(members), .rate = options.first, .weight_decay = options.second});
  }
  return groups;
}

std::vector<double> learning_rates(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  std::vector<double> rates;
  for (const auto& group : groups) {
    if (!group.has_options()) {
      throw UsageError("A parameter group has no options, so its learning rate is not known. Give it options.");
    }
    rates.push_back(group.options().get_lr());
  }
  return rates;
}

void freeze(torch::nn::Module& module, const std::vector<std::string>& prefixes) {
  set_trained(module, prefixes, false);
}

void unfreeze(torch::nn::Module& module, const std::vector<std::string>& prefixes) {
  set_trained(module, prefixes, true);
}

}  // namespace libtrain::optim
