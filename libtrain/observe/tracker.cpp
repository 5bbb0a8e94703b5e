#include <libtrain/observe/tracker.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {

Histogram Histogram::of(std::span<const float> values, int buckets) {
  if (buckets < 1) throw UsageError(text("A histogram cannot have ", buckets, " buckets. Give it at least 1."));
  Histogram histogram;
  double minimum = std::numeric_limits<double>::infinity();
  double maximum = -minimum;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    minimum = std::min(minimum, value);
    maximum = std::max(maximum, value);
    histogram.count += 1.0;
    histogram.sum += value;
    histogram.sum_of_squares += value * value;
  }
  if (histogram.count == 0.0) return histogram;
  histogram.minimum = minimum;
  histogram.maximum = maximum;
  const auto last = static_cast<std::size_t>(minimum < maximum ? buckets - 1 : 0);
  const double width = (maximum - minimum) / static_cast<double>(last + 1);
  for (std::size_t i = 0; i < last; ++i) histogram.limits.push_back(minimum + width * static_cast<double>(i + 1));
  histogram.limits.push_back(maximum);
  histogram.counts.resize(last + 1);
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    const auto bucket = std::ranges::lower_bound(histogram.limits, value) - histogram.limits.begin();
    histogram.counts[static_cast<std::size_t>(bucket)] += 1.0;
  }
  return histogram;
}

std::string metric_name(std::string_view event, std::string_view name) {
  return std::string{event == "step" ? "train" : event}.append("/").append(name);
}

void Trackers::log_params(const NamedValues& values) {
  for (const auto& tracker : trackers_) tracker->log_params(values);
}

void Trackers::log_tags(const NamedValues& values) {
  for (const auto& tracker : trackers_) tracker->log_tags(values);
}

void Trackers::log_metrics(std::string_view event, std::int64_t step, std::span<const Metric> values) {
  for (const auto& tracker : trackers_) tracker->log_metrics(event, step, values);
}

void Trackers::log_text(std::string_view name, std::int64_t step, std::string_view text) {
  for (const auto& tracker : trackers_) tracker->log_text(name, step, text);
}

void Trackers::log_image(std::string_view name, std::int64_t step, const EncodedImage& image) {
  for (const auto& tracker : trackers_) tracker->log_image(name, step, image);
}

void Trackers::log_histogram(std::string_view name, std::int64_t step, const Histogram& histogram) {
  for (const auto& tracker : trackers_) tracker->log_histogram(name, step, histogram);
}

void Trackers::log_artifact(const std::filesystem::path& path, std::string_view name) {
  for (const auto& tracker : trackers_) tracker->log_artifact(path, name);
}

void Trackers::end(RunStatus status) {
  for (const auto& tracker : trackers_) tracker->end(status);
}

void RecordTracker::log_metrics(std::string_view event, std::int64_t step, std::span<const Metric> values) {
  Record record{event};
  record.set("step", step);
  for (const auto& [name, value] : values) record.set(name, value);
  writer_.write(record);
}

}  // namespace libtrain
