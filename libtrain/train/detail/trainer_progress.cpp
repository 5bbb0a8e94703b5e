#include <libtrain/train/detail/trainer_progress.hpp>

#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr const char* kEvaluation = "evaluation/";
constexpr const char* kMetric = "metric/";
constexpr const char* kRates = "rates/";
constexpr const char* kInitialRates = "initial_rates/";
constexpr const char* kBestMetric = "best_metric";
constexpr const char* kMlflowRun = "mlflow_run";

at::Tensor integer(std::int64_t value) {
  return at::scalar_tensor(value, at::kLong);
}

at::Tensor number(double value) {
  return at::scalar_tensor(value, at::kDouble);
}

at::Tensor bytes(const std::string& value) {
  auto tensor = at::empty({static_cast<std::int64_t>(value.size())}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), value.data(), value.size());
  return tensor;
}

std::string characters(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

std::vector<double> numbers(const at::Tensor& tensor) {
  const auto* const values = tensor.const_data_ptr<double>();
  return {values, values + tensor.numel()};
}

}  // namespace

optim::NamedTensors TrainerProgress::tensors() const {
  auto named = means.tensors();
  named.emplace_back("samples", integer(state.samples));
  named.emplace_back("step_in_epoch", integer(step_in_epoch));
  named.emplace_back("best_step", integer(best_step));
  named.emplace_back("best_value", number(best_value));
  named.emplace_back("evaluations_without_improvement", integer(evaluations_without_improvement));
  named.emplace_back("must_evaluate", integer(must_evaluate ? 1 : 0));
  named.emplace_back("was_ended", integer(was_ended ? 1 : 0));
  named.emplace_back("steps_per_epoch", integer(steps_per_epoch));
  named.emplace_back("schedule_offset", integer(schedule_offset));
  named.emplace_back("ends_by_steps", integer(ends_by_steps));
  for (const auto& [name, values] : rates) named.emplace_back(kRates + name, at::tensor(values, at::kDouble));
  for (const auto& [name, values] : initial_rates)
    named.emplace_back(kInitialRates + name, at::tensor(values, at::kDouble));
  for (const auto& [name, value] : state.evaluation) named.emplace_back(kEvaluation + name, number(value));
  for (const auto& [name, value] : state.metrics) named.emplace_back(kMetric + name, number(value));
  if (!best_metric.empty()) named.emplace_back(kBestMetric, bytes(best_metric));
  if (!mlflow_run.empty()) named.emplace_back(kMlflowRun, bytes(mlflow_run));
  return named;
}

void TrainerProgress::load(const optim::NamedTensors& tensors) {
  means.load(tensors);
  state = {};
  best_metric.clear();
  mlflow_run.clear();
  rates.clear();
  initial_rates.clear();
  std::map<std::string, at::Tensor> by_name;
  for (const auto& [name, tensor] : tensors) by_name.emplace(name, tensor.cpu());
  const auto find = [&](const char* name) {
    const auto found = by_name.find(name);
    if (found == by_name.end() || found->second.numel() != 1)
      throw UsageError(text("There is no number '", name, "'."));
    return found->second;
  };
  state.samples = find("samples").item<std::int64_t>();
  step_in_epoch = find("step_in_epoch").item<std::int64_t>();
  best_step = find("best_step").item<std::int64_t>();
  best_value = find("best_value").item<double>();
  evaluations_without_improvement = find("evaluations_without_improvement").item<std::int64_t>();
  must_evaluate = find("must_evaluate").item<std::int64_t>() != 0;
  was_ended = find("was_ended").item<std::int64_t>() != 0;
  steps_per_epoch = find("steps_per_epoch").item<std::int64_t>();
  schedule_offset = find("schedule_offset").item<std::int64_t>();
  // Earlier checkpoints do not say it.
  ends_by_steps = by_name.contains("ends_by_steps") ? find("ends_by_steps").item<std::int64_t>() : -1;
  for (const auto& [name, tensor] : by_name) {
    if (name.starts_with(kEvaluation))
      state.evaluation.emplace(name.substr(std::strlen(kEvaluation)), tensor.item<double>());
    if (name.starts_with(kMetric)) state.metrics.emplace(name.substr(std::strlen(kMetric)), tensor.item<double>());
    if (name.starts_with(kRates)) rates.emplace(name.substr(std::strlen(kRates)), numbers(tensor));
    if (name.starts_with(kInitialRates))
      initial_rates.emplace(name.substr(std::strlen(kInitialRates)), numbers(tensor));
    if (name == kBestMetric) best_metric = characters(tensor);
    if (name == kMlflowRun) mlflow_run = characters(tensor);
  }
}

}  // namespace libtrain::detail
