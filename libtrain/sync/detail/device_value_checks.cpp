#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/stack.h>

#include <libtrain/base/splitmix.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/sync/detail/host_copy.hpp>
#include <libtrain/sync/detail/sharding/scattered_bucket.hpp>
#include <libtrain/sync/detail/value_checks.hpp>

namespace libtrain::detail {

namespace {

// Some values of every kEvery-th round are copied to the host, and looked at kDelay rounds later, when they have
// arrived long ago.
constexpr std::int64_t kEvery = 8;
constexpr std::int64_t kDelay = 4;

// The largest magnitudes of some tensors, by the caller's keys: finite if all elements are.
class Magnitudes {
 public:
  // One operation for all tensors.
  void add(const std::vector<std::size_t>& keys, const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> filled;
    for (std::size_t index = 0; index < tensors.size(); ++index) {
      if (tensors[index].numel() == 0) continue;  // has no largest element
      keys_.push_back(keys[index]);
      filled.push_back(tensors[index]);
    }
    if (filled.empty()) return;
    auto norms = at::_foreach_norm(filled, std::numeric_limits<double>::infinity());
    std::ranges::move(norms, std::back_inserter(values_));
  }

  const std::vector<std::size_t>& keys() const { return keys_; }

  // [keys().size()], float64, on the device. Undefined for none.
  at::Tensor gather() const {
    std::vector<at::Tensor> parts;
    for (std::size_t begin = 0, end = 0; begin < values_.size(); begin = end) {
      while (end < values_.size() && values_[end].scalar_type() == values_[begin].scalar_type()) ++end;
      parts.push_back(at::stack(at::TensorList{values_.data() + begin, end - begin}).to(at::kDouble));
    }
    if (parts.empty()) return {};
    return parts.size() == 1 ? parts.front() : at::cat(parts);
  }

 private:
  std::vector<std::size_t> keys_;
  std::vector<at::Tensor> values_;
};

std::span<const double> numbers_of(const at::Tensor& host) {
  if (!host.defined()) return {};
  return {host.const_data_ptr<double>(), static_cast<std::size_t>(host.numel())};
}

// One element of a parameter.
struct Probe {
  std::size_t parameter = 0;
  std::int64_t element = 0;  // in the parameter's memory
  std::size_t bytes = 0;
};

// The probes of parameters that have a place, those of one dtype together; in each round other elements.
std::vector<Probe> choose_probes(const ModuleParameters& parameters, std::int64_t round) {
  const auto choice = static_cast<std::uint64_t>(round) * kGoldenRatioBits >> 20;  // its multiples are spread evenly
  std::vector<Probe> probes;
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const auto& tensor = parameters[index].tensor;
    if (!parameters[index].place || tensor.numel() == 0) continue;
    const auto elements = static_cast<std::uint64_t>(tensor.numel());
    const auto element = tensor.is_non_overlapping_and_dense() ? choice % elements : 0;
    probes.push_back({.parameter = index, .element = static_cast<std::int64_t>(element), .bytes = tensor.itemsize()});
  }
  std::ranges::stable_sort(probes, {},
                           [&](const Probe& probe) { return parameters[probe.parameter].tensor.scalar_type(); });
  return probes;
}

// Their bytes, on the device: an operation for each dtype, and one to join several.
at::Tensor read_probes(const std::vector<Probe>& probes, const ModuleParameters& parameters) {
  std::vector<at::Tensor> parts;
  std::vector<at::Tensor> values;
  for (const auto& probe : probes) {
    const auto tensor = parameters[probe.parameter].tensor.detach();
    if (!values.empty() && values.front().scalar_type() != tensor.scalar_type()) {
      parts.push_back(at::cat(std::exchange(values, {})).view(at::kByte));
    }
    values.push_back(tensor.as_strided({1}, {1}, tensor.storage_offset() + probe.element));
  }
  if (values.empty()) return {};
  parts.push_back(at::cat(values).view(at::kByte));
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}

// What is seen of one round, and arrives on the host later.
struct Observation {
  std::int64_t round = 0;
  std::vector<Probe> probes = {};
  at::Tensor before = {};    // the probes' bytes when the round began
  Magnitudes own = {};       // of this rank's buckets
  Magnitudes averages = {};  // of all gradients
  HostCopy before_on_host = {};
  HostCopy changed = {};  // whether each byte was another one in wait()
  HostCopy own_on_host = {};
  HostCopy averages_on_host = {};
};

class DeviceValueChecks final : public ValueChecks {
 public:
  DeviceValueChecks(ModuleParameters& parameters, const SynchronizerOptions& options)
      : ValueChecks(parameters), options_(options) {}

  void open(std::int64_t round) override {
    const at::NoGradGuard no_grad;
    round_ = round;
    if (round % kEvery != 0) return;
    has_observation_ = false;  // one of an earlier round that was recorded or has failed
    observed_ = {.round = round, .probes = choose_probes(parameters_, round)};
    observed_.before = read_probes(observed_.probes, parameters_);
    is_observing_ = true;
  }

  void close() override {
    is_observing_ = false;
    own_ = {};
    overflowed_.reset();
    nan_.reset();
    zeros_.reset();
  }

  // Known some rounds later: see report().
  bool was_stepped(const ModuleParameter& /*parameter*/) const override { return false; }

  void look_at_gradients(const std::vector<std::size_t>& indices, const at::Tensor& flat) override {
    const at::NoGradGuard no_grad;
    if (is_observing_ && flat.defined()) observed_.own.add({0}, {flat});
    if (options_.non_finite == NonFinite::unchecked) return;
    std::vector<at::Tensor> gradients;
    for (const auto index : indices) gradients.push_back(parameters_[index].tensor.grad());
    own_.add(indices, gradients);
  }

  bool reports_averages() const override { return options_.non_finite != NonFinite::unchecked; }

  void report(RoundStatus& status, RoundReport& report, AverageOf overflows) override {
    const at::NoGradGuard no_grad;
    if (is_observing_) {
      const auto now = read_probes(observed_.probes, parameters_);
      if (now.defined()) observed_.changed = HostCopy(at::ne(observed_.before, now));
    }
    report_observation(status, report);
    if (options_.non_finite != NonFinite::unchecked) report_magnitudes(status, report, overflows);
  }

  // Averages of parameters without a place follow later, and rarely: the host waits for them.
  std::optional<std::size_t> first_overflowed(AverageOf overflows) override {
    if (overflowed_) return overflowed_;
    const auto unplanned =
        magnitudes_of([&](std::size_t index) { return parameters_[index].place ? nullptr : overflows(index); });
    const auto values = unplanned.gather();
    if (!values.defined()) return {};
    const auto host = values.cpu();
    const auto numbers = numbers_of(host);
    const auto found = std::ranges::find_if(numbers, [](double value) { return !std::isfinite(value); });
    if (found == numbers.end()) return {};
    return unplanned.keys()[static_cast<std::size_t>(found - numbers.begin())];
  }

  void look_at_averages(AverageOf averages) override {
    const at::NoGradGuard no_grad;
    if (!is_observing_) return;
    observed_.averages = magnitudes_of(averages);
    observed_.before_on_host = HostCopy(observed_.before);
    observed_.own_on_host = HostCopy(observed_.own.gather());
    observed_.averages_on_host = HostCopy(observed_.averages.gather());
    has_observation_ = true;
    is_observing_ = false;
  }

 protected:
  std::optional<Sighting> find_nan(AverageOf /*averages*/) override { return nan_; }
  std::optional<std::int64_t> find_zeros(AverageOf /*averages*/) override { return zeros_; }

 private:
  Magnitudes magnitudes_of(AverageOf averages) const {
    std::vector<std::size_t> indices;
    std::vector<at::Tensor> found;
    for (std::size_t index = 0; index < parameters_.size(); ++index) {
      const auto* const average = averages(index);
      if (average == nullptr) continue;
      indices.push_back(index);
      found.push_back(*average);
    }
    Magnitudes magnitudes;
    magnitudes.add(indices, found);
    return magnitudes;
  }

  // In the same round on all ranks.
  void report_observation(RoundStatus& status, RoundReport& report) {
    if (!has_observation_ || round_ != observed_.round + kDelay) return;
    has_observation_ = false;
    const auto& before = observed_.before_on_host.get();
    const auto& changed = observed_.changed.get();
    std::uint64_t digest = 0;
    std::size_t offset = 0;
    for (const auto& probe : observed_.probes) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, before.const_data_ptr<std::uint8_t>() + offset, std::min(probe.bytes, sizeof bits));
      digest = combine_keys(digest, bits);
      const auto* const bytes = changed.const_data_ptr<bool>() + offset;
      if (report.failure.empty() && std::any_of(bytes, bytes + probe.bytes, std::identity{})) {
        report.failure = text(parameters_[probe.parameter].problem_of_step(), " This was in round ",
                              observed_.round + 1, ": on a device it is detected some rounds later.");
      }
      offset += probe.bytes;
    }
    if (options_.replicas == Replicas::compared) status.set_replica(digest);
    find_nan_and_zeros();
  }

  void find_nan_and_zeros() {
    const auto own = numbers_of(observed_.own_on_host.get());
    const auto averages = numbers_of(observed_.averages_on_host.get());
    const auto nan = std::ranges::find_if(averages, [](double value) { return std::isnan(value); });
    if (nan != averages.end()) {
      nan_ = Sighting{observed_.averages.keys()[static_cast<std::size_t>(nan - averages.begin())], observed_.round + 1};
    }
    const auto is_zero = [](double value) { return value == 0; };
    // The mark of a ShardedOptimizer hides the other elements of its average.
    const auto is_zero_or_mark = [](double value) { return value == 0 || value == kForeignMark; };
    if (!own.empty() && std::ranges::all_of(own, is_zero) && !std::ranges::all_of(averages, is_zero_or_mark)) {
      zeros_ = observed_.round + 1;
    }
  }

  // The only wait of the host for the device in a round.
  void report_magnitudes(RoundStatus& status, RoundReport& report, AverageOf overflows) {
    const auto averages = magnitudes_of(overflows);
    std::vector<at::Tensor> parts{own_.gather(), averages.gather()};
    std::erase_if(parts, [](const at::Tensor& part) { return !part.defined(); });
    if (parts.empty()) return;
    const auto host = at::cat(parts).cpu();
    const auto values = numbers_of(host);
    const auto& keys = own_.keys();
    for (std::size_t index = 0; index < values.size(); ++index) {
      if (std::isfinite(values[index])) continue;
      status.set_non_finite();
      if (index < keys.size()) {
        report.non_finite.push_back(parameters_[keys[index]].name);
      } else if (!overflowed_) {
        overflowed_ = averages.keys()[index - keys.size()];
      }
    }
  }

  const SynchronizerOptions& options_;
  std::int64_t round_ = 0;
  bool is_observing_ = false;     // this round
  bool has_observation_ = false;  // of an earlier round, to report
  Observation observed_;

  // Of this round.
  Magnitudes own_;
  std::optional<std::size_t> overflowed_;
  std::optional<Sighting> nan_;
  std::optional<std::int64_t> zeros_;
};

}  // namespace

std::unique_ptr<ValueChecks> device_value_checks(ModuleParameters& parameters, const SynchronizerOptions& options) {
  return std::make_unique<DeviceValueChecks>(parameters, options);
}

}  // namespace libtrain::detail
