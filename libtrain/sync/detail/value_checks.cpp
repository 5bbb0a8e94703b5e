#include <libtrain/sync/detail/value_checks.hpp>

#include <cmath>

#include <ATen/Dispatch.h>

#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/tensor_checks.hpp>
#include <libtrain/numeric/detail/finite.hpp>
#include <libtrain/sync/detail/sharding/scattered_bucket.hpp>

namespace libtrain::detail {

namespace {

// The first element in memory; 0 for a tensor without elements.
double first_of(const at::Tensor& gradient) {
  double first = 0;
  if (gradient.numel() == 0) return first;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, gradient.scalar_type(), "first_of",
                                  [&] { first = static_cast<double>(*gradient.const_data_ptr<scalar_t>()); });
  return first;
}

bool is_finite(const at::Tensor& gradient) {
  const auto type = data_type_of(gradient.scalar_type());
  const auto dense = gradient.is_non_overlapping_and_dense() ? gradient : gradient.contiguous();
  return !type || all_finite(dense.const_data_ptr(), static_cast<std::size_t>(dense.numel()), *type);
}

// Reads one element if the first is not zero.
bool is_zero(const at::Tensor& gradient) {
  return first_of(gradient) == 0 && !gradient.any().item<bool>();
}

// Without the marks of a ShardedOptimizer in the elements of other ranks.
bool is_zero_apart_from_marks(const at::Tensor& average) {
  if (is_zero(average)) return true;
  const auto values = average.to(at::kDouble);
  return !values.ne(0).logical_and(values.ne(kForeignMark)).any().item<bool>();
}

class HostValueChecks final : public ValueChecks {
 public:
  HostValueChecks(ModuleParameters& parameters, const SynchronizerOptions& options)
      : ValueChecks(parameters), options_(options) {}

  void open(std::int64_t round) override {
    round_ = round;
    parameters_.remember_values(round);
  }

  void close() override {
    values_ = Values::none;
    non_finite_.clear();
  }

  bool was_stepped(const ModuleParameter& parameter) const override { return parameter.was_stepped(); }

  void look_at_gradients(const std::vector<std::size_t>& indices, const at::Tensor& /*flat*/) override {
    for (const auto index : indices) {
      const auto& gradient = parameters_[index].tensor.grad();
      if (values_ != Values::some) values_ = is_zero(gradient) ? Values::zeros : Values::some;
      if (options_.non_finite != NonFinite::unchecked && !is_finite(gradient)) non_finite_.push_back(index);
    }
  }

  void report(RoundStatus& status, RoundReport& report, AverageOf /*overflows*/) override {
    if (options_.replicas == Replicas::compared) status.set_replica(parameters_.digest_of_probes());
    if (!non_finite_.empty()) status.set_non_finite();
    for (const auto index : non_finite_) report.non_finite.push_back(parameters_[index].name);
  }

  // All ranks have the same bits, so all find the same.
  std::optional<std::size_t> first_overflowed(AverageOf overflows) override {
    return find(overflows, [](const at::Tensor& average) { return !is_finite(average); });
  }

  void look_at_averages(AverageOf /*averages*/) override {}

 protected:
  // NaN spreads quickly: one element of each gradient shows it before weights are saved and time is lost.
  std::optional<Sighting> find_nan(AverageOf averages) override {
    const auto found = find(averages, [](const at::Tensor& average) { return std::isnan(first_of(average)); });
    return found ? std::optional(Sighting{*found, round_ + 1}) : std::nullopt;
  }

  std::optional<std::int64_t> find_zeros(AverageOf averages) override {
    if (values_ != Values::zeros) return {};
    const auto found = find(averages, [](const at::Tensor& average) { return !is_zero_apart_from_marks(average); });
    return found ? std::optional(round_ + 1) : std::nullopt;
  }

 private:
  template <typename Condition>
  std::optional<std::size_t> find(AverageOf averages, const Condition& holds) const {
    for (std::size_t index = 0; index < parameters_.size(); ++index) {
      const auto* const average = averages(index);
      if (average != nullptr && holds(*average)) return index;
    }
    return {};
  }

  const SynchronizerOptions& options_;
  std::int64_t round_ = 0;
  enum class Values { none, zeros, some } values_ = Values::none;  // of this rank's gradients that were looked at
  std::vector<std::size_t> non_finite_;
};

}  // namespace

void ValueChecks::warn_of_nan(AverageOf averages) {
  const auto found = has_warned_of_nan_ ? std::nullopt : find_nan(averages);
  if (!found) return;
  has_warned_of_nan_ = true;
  log_warning(text("The gradient of parameter '", parameters_[found->parameter].name, "' holds NaN after round ",
                   found->rounds,
                   ". An optimizer step makes the weights NaN on all ranks. Set NonFinite::fatal to find the rank, or "
                   "skip such rounds with NonFinite::skipped or a LossScaler."));
}

// An empty batch has a loss of NaN and a gradient of zero, which makes the average too small.
void ValueChecks::warn_of_zeros(AverageOf averages, int rank) {
  const auto rounds = has_warned_of_zeros_ ? std::nullopt : find_zeros(averages);
  if (!rounds) return;
  has_warned_of_zeros_ = true;
  log_warning(text("Every gradient of rank ", rank, " was zero in round ", *rounds,
                   ", as after an empty batch, but the average gives this rank full weight. Call "
                   "set_samples(batch.size()) before backward() if batch sizes can differ between ranks."));
}

std::unique_ptr<ValueChecks> host_value_checks(ModuleParameters& parameters, const SynchronizerOptions& options) {
  return std::make_unique<HostValueChecks>(parameters, options);
}

}  // namespace libtrain::detail
