#include <libtrain/train/detail/metric_means.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/train/detail/number_bytes.hpp>

namespace libtrain::detail {

namespace {

constexpr std::string_view kRecordPrefix = "record/";
constexpr std::string_view kEpochPrefix = "epoch/";
constexpr std::array<std::string_view, 7> kFieldsOfRecords{"epoch", "epochs", "event", "run_id",
                                                           "step",  "steps",  "time"};

}  // namespace

void require_metric_name(const std::string& name) {
  if (std::ranges::find(kFieldsOfRecords, name) == kFieldsOfRecords.end()) return;
  throw UsageError(text("A metric has the name '", name, "', which records use for their own. Choose another one."));
}

void MetricMeans::add(const std::string& name, const at::Tensor& value, double weight) {
  if (!value.defined() || value.numel() != 1) {
    throw UsageError(text("The metric '", name, "' is ",
                          value.defined() ? text("a tensor of shape ", value.sizes()) : std::string{"undefined"},
                          ". Give one number, such as a mean over the batch."));
  }
  require_metric_name(name);
  auto& values = added_[name];
  values.values.push_back(value.detach().reshape({}));
  values.weights.push_back(weight);
}

std::vector<std::vector<double>> MetricMeans::gather(Communicator& communicator, const std::vector<double>& numbers) {
  // The caller's numbers, then the sum and the weight of each name.
  NamedNumbers mine;
  for (const auto number : numbers) mine.emplace_back("", number);
  for (auto& [name, added] : added_) {
    const auto values = at::stack(added.values).to(at::kCPU, at::kDouble);
    const auto* const value = values.const_data_ptr<double>();
    Sum sum;
    for (std::size_t index = 0; index < added.weights.size(); ++index) {
      if (added.weights[index] == 0 || (leaves_out_non_finite_ && !std::isfinite(value[index]))) continue;
      sum.sum += value[index] * added.weights[index];
      sum.weight += added.weights[index];
    }
    mine.emplace_back(name, sum.sum);
    mine.emplace_back(name, sum.weight);
  }
  added_.clear();

  const CallPurpose purpose{communicator, "the means of metrics"};
  std::vector<std::vector<double>> of_ranks;
  for (const auto& bytes : communicator.all_gather_bytes(to_bytes(mine))) {
    const auto theirs = named_numbers_of(bytes);
    auto& own = of_ranks.emplace_back();
    std::size_t next = 0;
    for (; next < numbers.size(); ++next) own.push_back(theirs.at(next).second);
    for (; next < theirs.size(); next += 2) {
      const auto& [name, sum] = theirs[next];
      for (auto* const sums : {&record_, &epoch_}) {
        (*sums)[name].sum += sum;
        (*sums)[name].weight += theirs.at(next + 1).second;
      }
    }
  }
  return of_ranks;
}

std::map<std::string, double> MetricMeans::take_record() {
  std::map<std::string, double> means;
  for (const auto& [name, sum] : std::exchange(record_, {}))
    if (sum.weight != 0) means.emplace(name, sum.sum / sum.weight);
  return means;
}

std::map<std::string, double> MetricMeans::of_epoch() const {
  std::map<std::string, double> means;
  for (const auto& [name, sum] : epoch_) means.emplace(name, sum.sum / sum.weight);
  return means;
}

std::map<std::string, double> MetricMeans::take_epoch() {
  auto means = of_epoch();
  epoch_.clear();
  return means;
}

optim::NamedTensors MetricMeans::tensors() const {
  optim::NamedTensors named;
  const auto add_sums = [&](std::string_view prefix, const Sums& sums) {
    for (const auto& [name, sum] : sums)
      named.emplace_back(text(prefix, name), at::tensor({sum.sum, sum.weight}, at::kDouble));
  };
  add_sums(kRecordPrefix, record_);
  add_sums(kEpochPrefix, epoch_);
  return named;
}

void MetricMeans::load(const optim::NamedTensors& tensors) {
  added_.clear();
  record_.clear();
  epoch_.clear();
  for (const auto& [name, tensor] : tensors) {
    auto* const sums = name.starts_with(kRecordPrefix) ? &record_ : name.starts_with(kEpochPrefix) ? &epoch_ : nullptr;
    if (sums == nullptr) continue;
    const auto numbers = tensor.to(at::kCPU, at::kDouble);
    if (numbers.numel() != 2) throw UsageError(text("The sum '", name, "' has ", numbers.numel(), " numbers, not 2."));
    const auto* const number = numbers.const_data_ptr<double>();
    (*sums)[name.substr(name.find('/') + 1)] = {.sum = number[0], .weight = number[1]};
  }
}

}  // namespace libtrain::detail
