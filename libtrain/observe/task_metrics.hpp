#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace libtrain {

// Metrics of evaluations that are not means over samples. Each class collects samples, in any order and divided among
// ranks in any way: merge_over_ranks() (libtrain/train/evaluate.hpp) adds the numbers() of all ranks, and the metrics
// then have the same bits as those of one process. One thread at a time.

/// Samples that have one class each: a matrix of counts, of labels by predictions. Metrics are those of scikit-learn
/// (sklearn.metrics, with zero_division=0).
class ClassCounts {
 public:
  /// Throws UsageError unless there is a class.
  explicit ClassCounts(std::int64_t classes);

  /// Throws UsageError for a class that does not exist.
  void add(std::int64_t label, std::int64_t predicted);

  std::uint64_t samples() const;

  /// The share of samples whose prediction is the label. NaN without samples, as all metrics.
  double accuracy() const;

  /// 2 TP / (2 TP + FP + FN) of one class: 0 if it is neither a label nor predicted.
  double f1(std::int64_t positive = 1) const;

  /// The mean of f1() over the classes that are labels or predicted.
  double macro_f1() const;

  /// Matthews' correlation coefficient, for any number of classes (Gorodkin, "Comparing two K-category assignments by a
  /// K-category correlation coefficient", 2004): 0 if all labels or all predictions are equal.
  double matthews() const;

  std::vector<double> numbers() const;

  /// Adds the numbers() of another one. Throws UsageError if it has other classes.
  void merge(std::span<const double> numbers);

 private:
  double count(std::size_t label, std::size_t predicted) const { return counts_[label * classes_ + predicted]; }
  double labelled(std::size_t number) const;
  double predicted(std::size_t number) const;

  std::size_t classes_;
  std::vector<double> counts_;  // exact up to 2^53
};

/// Samples that have any number of classes each. Metrics are those of scikit-learn for indicators of labels.
class SeveralClassCounts {
 public:
  /// Throws UsageError unless there is a class.
  explicit SeveralClassCounts(std::int64_t classes);

  /// Which classes the sample has and which were predicted: other numbers than 0. Throws UsageError for another number
  /// of classes.
  void add(std::span<const float> targets, std::span<const float> predicted);

  std::uint64_t samples() const { return static_cast<std::uint64_t>(samples_); }

  /// The share of samples of which all classes are predicted and no others.
  double accuracy() const;

  /// F1 of all decisions together, and the mean of the classes' F1, in which a class that is neither a target nor
  /// predicted counts as 0.
  double micro_f1() const;
  double macro_f1() const;

  std::vector<double> numbers() const;

  /// As that of ClassCounts.
  void merge(std::span<const double> numbers);

 private:
  double samples_ = 0;
  double exact_ = 0;
  std::vector<double> hits_;
  std::vector<double> targets_;
  std::vector<double> predicted_;
};

/// Samples that have a real number each. Keeps the numbers, 16 bytes per sample.
class NumberPairs {
 public:
  void add(double target, double predicted) { pairs_.emplace_back(target, predicted); }

  std::uint64_t samples() const { return pairs_.size(); }

  double mean_squared_error() const;

  /// The correlation coefficient of Pearson, and that of Spearman: the same of ranks, of which equal numbers have the
  /// mean. 0 if all targets or all predictions are equal, unlike scipy.stats, which has NaN then.
  double pearson() const;
  double spearman() const;

  std::vector<double> numbers() const;
  void merge(std::span<const double> numbers);

 private:
  std::vector<std::pair<double, double>> sorted() const;

  std::vector<std::pair<double, double>> pairs_;
};

}  // namespace libtrain
