#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <libtrain/sync/detail/module_parameters.hpp>
#include <libtrain/sync/detail/round_status.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

namespace libtrain::detail {

/// What a synchronizer looks for in the values of parameters and gradients: NaN and infinity, gradients that are all
/// zero, replicas that have diverged, and an optimizer that steps before wait(). On the host it reads memory at once.
/// The values on a device are known to the host only after it has waited for the device, so there it looks at some
/// values of some rounds, some rounds later; only NonFinite::skipped and fatal make it wait, once in a round.
///
/// A round calls open(), look_at_gradients() for each bucket, report(), look_at_averages() and the warnings, in this
/// order, on all ranks.
class ValueChecks {
 public:
  /// The average of the parameter of that index, after the reductions; null if it has none.
  using AverageOf = c10::function_ref<const at::Tensor*(std::size_t)>;

  virtual ~ValueChecks() = default;
  ValueChecks(const ValueChecks&) = delete;  // keeps what it has seen of one synchronizer's rounds
  ValueChecks& operator=(const ValueChecks&) = delete;

  /// Begins a round, counted from 0, before its first gradient: remembers some values of parameters.
  virtual void open(std::int64_t round) = 0;

  /// Ends a round, whatever has happened in it.
  virtual void close() = 0;

  /// Whether the parameter, which has a place, is known to have changed since open().
  virtual bool was_stepped(const ModuleParameter& parameter) const = 0;

  /// Parameters whose gradients are about to be reduced, and `flat`, their bucket: undefined without one. Not called if
  /// this rank's gradients count nothing.
  virtual void look_at_gradients(const std::vector<std::size_t>& indices, const at::Tensor& flat) = 0;

  /// Whether report() is to be called after the reductions instead of before them.
  virtual bool reports_averages() const { return false; }

  /// Sets flags of the status, and names in the report of this rank, before ranks exchange them. `overflows` selects
  /// the averages that may be infinite where no gradient was.
  virtual void report(RoundStatus& status, RoundReport& report, AverageOf overflows) = 0;

  /// The first of the averages selected by `overflows` that is not finite, if it is known.
  virtual std::optional<std::size_t> first_overflowed(AverageOf overflows) = 0;

  virtual void look_at_averages(AverageOf averages) = 0;

  /// Logs, once, that an average has NaN.
  void warn_of_nan(AverageOf averages);

  /// Logs, once, that all gradients of this `rank`, but not all averages, were zero.
  void warn_of_zeros(AverageOf averages, int rank);

 protected:
  explicit ValueChecks(ModuleParameters& parameters) : parameters_(parameters) {}

  /// A parameter, by index, and the number of rounds after which it was seen.
  struct Sighting {
    std::size_t parameter = 0;
    std::int64_t rounds = 0;
  };
  virtual std::optional<Sighting> find_nan(AverageOf averages) = 0;

  /// The number of rounds after which only the gradients of this rank were zero.
  virtual std::optional<std::int64_t> find_zeros(AverageOf averages) = 0;

  ModuleParameters& parameters_;

 private:
  bool has_warned_of_nan_ = false;
  bool has_warned_of_zeros_ = false;
};

/// For parameters on the host, or on a device. Parameters and options must outlive it.
std::unique_ptr<ValueChecks> host_value_checks(ModuleParameters& parameters, const SynchronizerOptions& options);
std::unique_ptr<ValueChecks> device_value_checks(ModuleParameters& parameters, const SynchronizerOptions& options);

}  // namespace libtrain::detail
