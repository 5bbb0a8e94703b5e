#include <libtrain/observe/task_metrics.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {

namespace {

constexpr double kNoMetric = std::numeric_limits<double>::quiet_NaN();

std::size_t require_classes(std::int64_t classes) {
  if (classes < 1) throw UsageError(text("There are ", classes, " classes to count. Give at least one."));
  return static_cast<std::size_t>(classes);
}

// The counts of another rank are added; their number depends on the number of classes.
void require_as_many(std::size_t theirs, std::size_t own) {
  if (theirs == own) return;
  throw UsageError(
      text("Counts of ", theirs, " numbers are added to ", own, ". Count the same number of classes on every rank."));
}

double f1_of(double hits, double targets, double predicted) {
  return targets + predicted == 0 ? 0 : 2 * hits / (targets + predicted);
}

double correlation(const std::vector<std::pair<double, double>>& pairs) {
  if (pairs.empty()) return kNoMetric;
  const auto count = static_cast<double>(pairs.size());
  double mean_of_first = 0;
  double mean_of_second = 0;
  for (const auto& [first, second] : pairs) {
    mean_of_first += first;
    mean_of_second += second;
  }
  mean_of_first /= count;
  mean_of_second /= count;
  double both = 0;
  double squares_of_first = 0;
  double squares_of_second = 0;
  for (const auto& [first, second] : pairs) {
    both += (first - mean_of_first) * (second - mean_of_second);
    squares_of_first += (first - mean_of_first) * (first - mean_of_first);
    squares_of_second += (second - mean_of_second) * (second - mean_of_second);
  }
  const double scale = std::sqrt(squares_of_first) * std::sqrt(squares_of_second);
  return scale == 0 ? 0 : std::clamp(both / scale, -1.0, 1.0);
}

// Not by the sums of squares: the mean of equal numbers may differ from them by rounding.
template <typename Member>
bool are_all_equal(const std::vector<std::pair<double, double>>& pairs, Member member) {
  return std::ranges::all_of(pairs, [&](const auto& pair) { return pair.*member == pairs.front().*member; });
}

double correlation_or_zero(const std::vector<std::pair<double, double>>& pairs) {
  using Pair = std::pair<double, double>;
  if (!pairs.empty() && (are_all_equal(pairs, &Pair::first) || are_all_equal(pairs, &Pair::second))) return 0;
  return correlation(pairs);
}

// Replaces numbers by their ranks, from 1 on; equal ones have the mean of theirs.
template <typename Member>
void rank_numbers(std::vector<std::pair<double, double>>& pairs, Member member) {
  std::vector<std::size_t> order(pairs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t number) { return pairs[number].*member; });
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && pairs[order[end]].*member == pairs[order[begin]].*member) ++end;
    const double rank = (static_cast<double>(begin + 1) + static_cast<double>(end)) / 2;
    for (std::size_t place = begin; place < end; ++place) pairs[order[place]].*member = rank;
    begin = end;
  }
}

bool has_nan(const std::vector<std::pair<double, double>>& pairs) {
  return std::ranges::any_of(pairs, [](const auto& pair) { return std::isnan(pair.first) || std::isnan(pair.second); });
}

}  // namespace

ClassCounts::ClassCounts(std::int64_t classes) : classes_(require_classes(classes)), counts_(classes_ * classes_) {}

void ClassCounts::add(std::int64_t label, std::int64_t predicted) {
  const auto classes = static_cast<std::int64_t>(classes_);
  for (const std::int64_t number : {label, predicted}) {
    if (number >= 0 && number < classes) continue;
    throw UsageError(text("A sample of class ", label, " for which ", predicted,
                          " was predicted cannot be counted: "
                          "there are ",
                          classes, " classes."));
  }
  ++counts_[static_cast<std::size_t>(label) * classes_ + static_cast<std::size_t>(predicted)];
}

double ClassCounts::labelled(std::size_t number) const {
  double sum = 0;
  for (std::size_t other = 0; other < classes_; ++other) sum += count(number, other);
  return sum;
}

double ClassCounts::predicted(std::size_t number) const {
  double sum = 0;
  for (std::size_t other = 0; other < classes_; ++other) sum += count(other, number);
  return sum;
}

std::uint64_t ClassCounts::samples() const {
  return static_cast<std::uint64_t>(std::accumulate(counts_.begin(), counts_.end(), 0.0));
}

double ClassCounts::accuracy() const {
  double correct = 0;
  for (std::size_t number = 0; number < classes_; ++number) correct += count(number, number);
  return correct / static_cast<double>(samples());
}

double ClassCounts::f1(std::int64_t positive) const {
  if (positive < 0 || positive >= static_cast<std::int64_t>(classes_)) {
    throw UsageError(text("The F1 of class ", positive, " was requested: there are ", classes_, " classes."));
  }
  if (samples() == 0) return kNoMetric;
  const auto number = static_cast<std::size_t>(positive);
  return f1_of(count(number, number), labelled(number), predicted(number));
}

double ClassCounts::macro_f1() const {
  double sum = 0;
  double present = 0;
  for (std::size_t number = 0; number < classes_; ++number) {
    const double targets = labelled(number);
    const double guesses = predicted(number);
    if (targets + guesses == 0) continue;
    sum += f1_of(count(number, number), targets, guesses);
    ++present;
  }
  return sum / present;
}

double ClassCounts::matthews() const {
  const auto all = static_cast<double>(samples());
  if (all == 0) return kNoMetric;
  double correct = 0;
  double both = 0;
  double of_labels = 0;
  double of_predictions = 0;
  for (std::size_t number = 0; number < classes_; ++number) {
    const double targets = labelled(number);
    const double guesses = predicted(number);
    correct += count(number, number);
    both += targets * guesses;
    of_labels += targets * targets;
    of_predictions += guesses * guesses;
  }
  // Exact up to 9e7 samples, whose square is below 2^53.
  const double scale = std::sqrt(all * all - of_labels) * std::sqrt(all * all - of_predictions);
  return scale == 0 ? 0 : (correct * all - both) / scale;
}

std::vector<double> ClassCounts::numbers() const {
  return counts_;
}

void ClassCounts::merge(std::span<const double> numbers) {
  require_as_many(numbers.size(), counts_.size());
  for (std::size_t index = 0; index < counts_.size(); ++index) counts_[index] += numbers[index];
}

SeveralClassCounts::SeveralClassCounts(std::int64_t classes)
    : hits_(require_classes(classes)), targets_(hits_.size()), predicted_(hits_.size()) {}

void SeveralClassCounts::add(std::span<const float> targets, std::span<const float> predicted) {
  if (targets.size() != hits_.size() || predicted.size() != hits_.size()) {
    throw UsageError(text("A sample with ", targets.size(), " targets and ", predicted.size(),
                          " predictions cannot be counted: there are ", hits_.size(), " classes."));
  }
  bool is_exact = true;
  for (std::size_t number = 0; number < hits_.size(); ++number) {
    const bool is_target = targets[number] != 0;
    const bool is_predicted = predicted[number] != 0;
    hits_[number] += is_target && is_predicted ? 1 : 0;
    targets_[number] += is_target ? 1 : 0;
    predicted_[number] += is_predicted ? 1 : 0;
    is_exact = is_exact && is_target == is_predicted;
  }
  exact_ += is_exact ? 1 : 0;
  ++samples_;
}

double SeveralClassCounts::accuracy() const {
  return exact_ / samples_;
}

double SeveralClassCounts::micro_f1() const {
  if (samples_ == 0) return kNoMetric;
  const auto sum = [](const std::vector<double>& counts) { return std::accumulate(counts.begin(), counts.end(), 0.0); };
  return f1_of(sum(hits_), sum(targets_), sum(predicted_));
}

double SeveralClassCounts::macro_f1() const {
  if (samples_ == 0) return kNoMetric;
  double sum = 0;
  for (std::size_t number = 0; number < hits_.size(); ++number) {
    sum += f1_of(hits_[number], targets_[number], predicted_[number]);
  }
  return sum / static_cast<double>(hits_.size());
}

std::vector<double> SeveralClassCounts::numbers() const {
  std::vector<double> all{samples_, exact_};
  for (const auto* counts : {&hits_, &targets_, &predicted_}) all.insert(all.end(), counts->begin(), counts->end());
  return all;
}

void SeveralClassCounts::merge(std::span<const double> numbers) {
  require_as_many(numbers.size(), 2 + 3 * hits_.size());
  samples_ += numbers[0];
  exact_ += numbers[1];
  std::size_t index = 2;
  for (auto* counts : {&hits_, &targets_, &predicted_}) {
    for (double& count : *counts) count += numbers[index++];
  }
}

// Sums in this order have the same bits however the samples came.
std::vector<std::pair<double, double>> NumberPairs::sorted() const {
  auto pairs = pairs_;
  std::ranges::sort(pairs);
  return pairs;
}

double NumberPairs::mean_squared_error() const {
  if (has_nan(pairs_)) return kNoMetric;
  double sum = 0;
  for (const auto& [target, predicted] : sorted()) sum += (target - predicted) * (target - predicted);
  return sum / static_cast<double>(pairs_.size());
}

double NumberPairs::pearson() const {
  return has_nan(pairs_) ? kNoMetric : correlation_or_zero(sorted());
}

double NumberPairs::spearman() const {
  if (has_nan(pairs_)) return kNoMetric;
  auto pairs = sorted();
  rank_numbers(pairs, &std::pair<double, double>::first);
  rank_numbers(pairs, &std::pair<double, double>::second);
  return correlation_or_zero(pairs);
}

std::vector<double> NumberPairs::numbers() const {
  std::vector<double> all;
  all.reserve(2 * pairs_.size());
  for (const auto& [target, predicted] : pairs_) all.insert(all.end(), {target, predicted});
  return all;
}

void NumberPairs::merge(std::span<const double> numbers) {
  for (std::size_t index = 0; index + 1 < numbers.size(); index += 2) add(numbers[index], numbers[index + 1]);
}

}  // namespace libtrain
