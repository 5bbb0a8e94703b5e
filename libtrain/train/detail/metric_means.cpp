#include <libtrain/train/detail/metric_means.hpp>

#include <cstddef>
#include <cstring>
#include <string_view>

#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr std::string_view kRecordPrefix = "record/";
constexpr std::string_view kEpochPrefix = "epoch/";

void append_number(std::string& bytes, double number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// A message that this file has written, on another rank.
class NumberReader {
 public:
  explicit NumberReader(std::string_view bytes) : bytes_(bytes) {}

  bool at_end() const { return bytes_.empty(); }

  double number() {
    double number = 0;
    const auto word = take(sizeof number);
    std::memcpy(&number, word.data(), sizeof number);
    return number;
  }

  std::size_t count() { return static_cast<std::size_t>(number()); }

  std::string_view take(std::size_t length) {
    if (length > bytes_.size()) {
      throw CommunicationError(
          "A rank sent metrics that cannot be read. Run the same build of libtrain on every rank.");
    }
    const auto taken = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return taken;
  }

 private:
  std::string_view bytes_;
};

}  // namespace

void MetricMeans::add(const std::string& name, const at::Tensor& value, double weight) {
  if (!value.defined() || value.numel() != 1) {
    throw UsageError(text("The metric '", name, "' is ",
                          value.defined() ? text("a tensor of shape ", value.sizes()) : std::string{"undefined"},
                          ". Give one number, such as a mean over the batch."));
  }
  auto& values = added_[name];
  values.values.push_back(value.dim() == 0 ? value.detach() : value.detach().reshape({}));
  values.weights.push_back(weight);
}

std::vector<std::vector<double>> MetricMeans::gather(Communicator& communicator, const std::vector<double>& numbers) {
  std::string mine;
  append_number(mine, static_cast<double>(numbers.size()));
  for (const auto number : numbers) append_number(mine, number);
  for (auto& [name, added] : added_) {
    const auto values = at::stack(added.values).to(at::kCPU, at::kDouble);
    const auto* const value = values.const_data_ptr<double>();
    Sum sum;
    for (std::size_t index = 0; index < added.weights.size(); ++index) {
      sum.sum += value[index] * added.weights[index];
      sum.weight += added.weights[index];
    }
    append_number(mine, static_cast<double>(name.size()));
    mine += name;
    append_number(mine, sum.sum);
    append_number(mine, sum.weight);
  }
  added_.clear();

  const CallPurpose purpose{communicator, "the means of metrics"};
  std::vector<std::vector<double>> of_ranks;
  for (const auto& bytes : communicator.all_gather_bytes(mine)) {
    NumberReader reader{bytes};
    auto& own = of_ranks.emplace_back(reader.count());
    for (auto& number : own) number = reader.number();
    while (!reader.at_end()) {
      const std::string name{reader.take(reader.count())};
      const double sum = reader.number();
      const double weight = reader.number();
      for (auto* const sums : {&record_, &epoch_}) {
        (*sums)[name].sum += sum;
        (*sums)[name].weight += weight;
      }
    }
  }
  return of_ranks;
}

std::map<std::string, double> MetricMeans::take(Sums& sums) {
  std::map<std::string, double> means;
  for (const auto& [name, sum] : sums) means.emplace(name, sum.sum / sum.weight);
  sums.clear();
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
