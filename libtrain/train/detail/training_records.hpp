#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/observe/alerts.hpp>
#include <libtrain/observe/mlflow.hpp>
#include <libtrain/observe/progress_line.hpp>
#include <libtrain/observe/tracker.hpp>
#include <libtrain/train/context.hpp>

namespace libtrain::detail {

/// Shows a training where its user looks: trackers, the progress line, and alerts. Only on rank 0; other ranks drop
/// everything.
class TrainingRecords {
 public:
  struct Options {
    std::int64_t log_every_steps = 10;
    bool tensor_board = true;
    bool mlflow = true;
    std::string mlflow_run = {};          ///< to be continued
    std::int64_t memory_limit_bytes = 0;  ///< of rank 0
  };

  TrainingRecords(Context& context, const NamedValues& configuration, const Options& options);

  /// What the ranks have measured since the last record; element r is that of rank r.
  struct Measured {
    std::int64_t samples = 0;  ///< of all ranks
    double seconds = 0;        ///< of the steps on rank 0, as are the next two
    double seconds_waiting_for_data = 0;
    double seconds_waiting_for_communication = 0;
    std::vector<double> own_seconds = {};   ///< of a step, without the wait for other ranks
    std::vector<double> memory_bytes = {};  ///< in use
  };

  /// A `step` record with these means and what was measured. Watches for what alerts.hpp lists.
  void record_step(std::int64_t step, std::int64_t epoch, const std::map<std::string, double>& means,
                   const Measured& measured);

  /// A record of another event.
  void record(std::string_view event, std::int64_t step, std::int64_t epoch,
              const std::map<std::string, double>& values);

  /// The progress line, with the figures of the last record.
  void show_step(std::int64_t step_in_epoch);
  void show_end_of_epoch(const std::map<std::string, double>& values);

  /// A line with the values of an evaluation that belongs to no epoch.
  void show_evaluation(const std::map<std::string, double>& values);

  Trackers& trackers() { return trackers_; }

  /// The run on the MLflow server, as far as it is known.
  std::string mlflow_run() const;

  void end(RunStatus status);

 private:
  void watch(std::int64_t step, const std::map<std::string, double>& means, const Measured& measured);
  void alert(const std::optional<Alert>& alert);

  Context& context_;
  const bool is_shown_;
  const Options options_;
  Trackers trackers_;
  MlflowRun* mlflow_ = nullptr;  // one of the trackers
  std::vector<ProgressFigure> figures_;
  LossWatch loss_;
  SlowRankWatch slow_rank_;
  StarvationWatch starvation_;
  MemoryWatch memory_;
  ThrottlingWatch throttling_;
  std::int64_t records_ = 0;
};

}  // namespace libtrain::detail
