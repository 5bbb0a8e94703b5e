#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/observe/metrics.hpp>

namespace libtrain {

struct Metric {
  std::string name;    ///< such as "loss"
  double value = 0.0;  ///< may be NaN or infinite
};

/// The bytes of a PNG or JPEG file.
struct EncodedImage {
  std::string_view bytes;
  int height = 0;  ///< in pixels, as is width
  int width = 0;
  int channels = 3;  ///< 1 (grey), 3 (RGB) or 4 (RGBA)
};

/// How values are distributed: counts[i] of them lie in (limits[i - 1], limits[i]], of the first bucket in
/// (-infinity, limits[0]].
struct Histogram {
  double minimum = 0.0;
  double maximum = 0.0;
  double count = 0.0;
  double sum = 0.0;
  double sum_of_squares = 0.0;
  std::vector<double> limits = {};
  std::vector<double> counts = {};

  /// `buckets` (at least 1) of equal width between the smallest and the largest value; values that are NaN or infinite
  /// are left out. TensorBoard shows at most 30 buckets.
  static Histogram of(std::span<const float> values, int buckets = 30);
};

using NamedValues = std::vector<std::pair<std::string, std::string>>;

enum class RunStatus { finished, failed, stopped };

/// A place that shows a run: metrics.jsonl, TensorBoard, an MLflow server. A training loop gives everything once, to a
/// `Trackers` that has all of them. What a tracker cannot show it ignores; images, for instance, do not go to
/// metrics.jsonl.
///
/// Only rank 0 tracks. Any thread may call. A call neither waits for a disk or a network nor throws for their failures,
/// unless the implementation says otherwise. Values of parameters and tags whose names look like secrets are masked.
class Tracker {
 public:
  Tracker() = default;
  Tracker(const Tracker&) = delete;  // owns a file or a connection
  Tracker& operator=(const Tracker&) = delete;
  virtual ~Tracker() = default;

  /// The run's configuration, complete, once at the start.
  virtual void log_params(const NamedValues&) {}

  virtual void log_tags(const NamedValues&) {}

  /// Values at `step`, which is counted from the start of the training. `event` is that of a record in metrics.jsonl:
  /// `step`, `epoch`, `evaluation` or `summary`; `metric_name` is how other places call a value.
  virtual void log_metrics(std::string_view event, std::int64_t step, std::span<const Metric> values) = 0;

  virtual void log_text(std::string_view /*name*/, std::int64_t /*step*/, std::string_view /*text*/) {}
  virtual void log_image(std::string_view /*name*/, std::int64_t /*step*/, const EncodedImage&) {}
  virtual void log_histogram(std::string_view /*name*/, std::int64_t /*step*/, const Histogram&) {}

  /// A file, or a folder with all its files, to be stored with the run under `name`, such as "model". It must not
  /// change before `end`.
  virtual void log_artifact(const std::filesystem::path& /*path*/, std::string_view /*name*/) {}

  /// The last call. May wait, for a time that the implementation bounds, until everything is stored.
  virtual void end(RunStatus) {}
};

/// "train/loss" for `loss` of the event `step`, otherwise event and name, as in "evaluation/loss".
std::string metric_name(std::string_view event, std::string_view name);

/// Passes every call on to its trackers, in order.
class Trackers final : public Tracker {
 public:
  void add(std::unique_ptr<Tracker> tracker) { trackers_.push_back(std::move(tracker)); }

  void log_params(const NamedValues& values) override;
  void log_tags(const NamedValues& values) override;
  void log_metrics(std::string_view event, std::int64_t step, std::span<const Metric> values) override;
  void log_text(std::string_view name, std::int64_t step, std::string_view text) override;
  void log_image(std::string_view name, std::int64_t step, const EncodedImage& image) override;
  void log_histogram(std::string_view name, std::int64_t step, const Histogram& histogram) override;
  void log_artifact(const std::filesystem::path& path, std::string_view name) override;
  void end(RunStatus status) override;

 private:
  std::vector<std::unique_ptr<Tracker>> trackers_;
};

/// Writes `log_metrics` to a MetricsWriter, one record a call: the event, "step", and the values by name. The run's
/// configuration is in its `run` event already. Throws what MetricsWriter::write throws.
class RecordTracker final : public Tracker {
 public:
  /// `writer` must outlive this object.
  explicit RecordTracker(MetricsWriter& writer) : writer_(writer) {}

  void log_metrics(std::string_view event, std::int64_t step, std::span<const Metric> values) override;

 private:
  MetricsWriter& writer_;
};

}  // namespace libtrain
