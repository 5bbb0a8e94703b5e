#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/optim/named_tensors.hpp>

namespace libtrain::detail {

/// Throws UsageError for the name of a value that records have for every run, such as "step".
void require_metric_name(const std::string& name);

/// Weighted means of named values over steps and over all ranks: of those since the last record, and of those of the
/// epoch. Values stay where they are, and are read in gather(). Sums are in float64: for float32 values of similar size
/// and some thousand samples they are exact, and do not depend on where gather() was called; with many more, the last
/// bits may.
class MetricMeans {
 public:
  /// From now on values that are not finite have no weight, as those of steps that a loss scaler skips.
  void leave_out_non_finite() { leaves_out_non_finite_ = true; }

  /// `value` is one number, on any device.
  void add(const std::string& name, const at::Tensor& value, double weight);

  /// Adds the values of all ranks since the last call to both sums. All ranks must call it, with equally many
  /// `numbers`. Element r of the result is the `numbers` of rank r.
  std::vector<std::vector<double>> gather(Communicator& communicator, const std::vector<double>& numbers = {});

  /// Whether anything was gathered since take_record().
  bool has_record() const { return !record_.empty(); }

  /// The means of what was gathered, without names whose values all have the weight 0; forgets them.
  std::map<std::string, double> take_record();

  /// Those of the epoch, NaN for such names.
  std::map<std::string, double> of_epoch() const;
  std::map<std::string, double> take_epoch();

  /// The sums, for checkpoints: "record/loss" and "epoch/loss", each a sum and a weight.
  optim::NamedTensors tensors() const;
  void load(const optim::NamedTensors& tensors);

 private:
  struct Sum {
    double sum = 0;
    double weight = 0;
  };
  using Sums = std::map<std::string, Sum>;

  struct Values {
    std::vector<at::Tensor> values;
    std::vector<double> weights;
  };

  bool leaves_out_non_finite_ = false;
  std::map<std::string, Values> added_;
  Sums record_;
  Sums epoch_;
};

}  // namespace libtrain::detail
