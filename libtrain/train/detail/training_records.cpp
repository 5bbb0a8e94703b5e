#include <libtrain/train/detail/training_records.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/environment.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/observe/tensor_board.hpp>

namespace libtrain::detail {

namespace {

// The watches count steps, and see one value for each record.
int records_in(int steps, std::int64_t log_every_steps, int minimum) {
  return std::max(minimum, static_cast<int>(steps / log_every_steps));
}

std::filesystem::path tensor_board_folder(const Environment& environment, const std::filesystem::path& output) {
  // Azure ML shows what its jobs write there.
  return environment.has("AZUREML_RUN_ID") ? std::filesystem::path{"logs"} : output / "logs";
}

// A run that is asked to stop must end within 20 s.
constexpr std::chrono::seconds kTimeToEnd{8};

double share(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

}  // namespace

TrainingRecords::TrainingRecords(Context& context, const NamedValues& configuration, const Options& options)
    : context_(context),
      is_shown_(context.rank() == 0),
      options_(options),
      loss_({.window = records_in(100, options.log_every_steps, 10),
             .steps_in_a_row = records_in(5, options.log_every_steps, 2)}),
      slow_rank_({.steps = records_in(50, options.log_every_steps, 5)}),
      starvation_({.steps = records_in(100, options.log_every_steps, 5)}),
      memory_({.steps = records_in(100, options.log_every_steps, 1)}) {
  if (!is_shown_) return;
  trackers_.add(std::make_unique<RecordTracker>(context.metrics()));
  const auto environment = Environment::of_process();
  if (options.tensor_board) {
    trackers_.add(std::make_unique<TensorBoardWriter>(tensor_board_folder(environment, context.output_directory())));
  }
  if (options.mlflow && environment.has("MLFLOW_TRACKING_URI")) {
    // A run that the environment names is meant for this start of the program.
    const auto run_id = environment.has("MLFLOW_RUN_ID") ? std::string{} : options.mlflow_run;
    auto run =
        std::make_unique<MlflowRun>(environment, MlflowRun::Options{.run_id = run_id, .end_timeout = kTimeToEnd});
    mlflow_ = run.get();
    trackers_.add(std::move(run));
  }
  trackers_.log_params(configuration);
}

void TrainingRecords::record_step(std::int64_t step, std::int64_t epoch, const std::map<std::string, double>& means,
                                  const Measured& measured) {
  if (!is_shown_) return;
  const double samples_per_s = share(static_cast<double>(measured.samples), measured.seconds);
  const double data_share = share(measured.seconds_waiting_for_data, measured.seconds);
  const double communication_share = share(measured.seconds_waiting_for_communication, measured.seconds);
  auto values = means;
  values.emplace("samples_per_s", samples_per_s);
  values.emplace("data_wait_share", data_share);
  values.emplace("communication_share", communication_share);
  record("step", step, epoch, values);

  figures_.clear();
  if (const auto loss = means.find("loss"); loss != means.end()) figures_.push_back({loss->second, "loss"});
  figures_.push_back({samples_per_s, "samples/s"});
  figures_.push_back({100 * data_share, "% waiting for data"});
  if (context_.world_size() > 1) figures_.push_back({100 * communication_share, "% for other ranks"});
  watch(step, means, measured);
}

void TrainingRecords::record(std::string_view event, std::int64_t step, std::int64_t epoch,
                             const std::map<std::string, double>& values) {
  if (!is_shown_) return;
  std::vector<Metric> metrics{{"epoch", static_cast<double>(epoch)}};
  for (const auto& [name, value] : values) metrics.push_back({name, value});
  trackers_.log_metrics(event, step, metrics);
  // Of an epoch in which all steps were skipped, no record of steps has the loss.
  if (const auto loss = values.find("loss"); event == "epoch" && loss != values.end() && !std::isfinite(loss->second))
    alert(loss_.observe(step, loss->second));
}

void TrainingRecords::watch(std::int64_t step, const std::map<std::string, double>& means, const Measured& measured) {
  if (const auto loss = means.find("loss"); loss != means.end()) alert(loss_.observe(step, loss->second));
  if (measured.own_seconds.size() > 1) alert(slow_rank_.observe(step, measured.own_seconds));
  alert(starvation_.observe(step, measured.seconds, measured.seconds_waiting_for_data));
  const auto most = std::ranges::max_element(measured.memory_bytes);
  if (most != measured.memory_bytes.end() && *most > 0) {
    alert(memory_.observe(step, static_cast<std::int64_t>(*most), options_.memory_limit_bytes));
  }
  // Files of the system, which are read less often.
  if (records_++ % records_in(100, options_.log_every_steps, 1) != 0) return;
  if (const auto quota = cpu_throttling()) alert(throttling_.observe_quota(step, quota->periods, quota->throttled));
  if (const auto reductions = clock_throttling()) alert(throttling_.observe_clocks(step, *reductions));
}

void TrainingRecords::alert(const std::optional<Alert>& alert) {
  if (!alert) return;
  log_warning(alert->message);
  context_.metrics().write(alert->record());
}

void TrainingRecords::show_step(std::int64_t step_in_epoch) {
  if (is_shown_) context_.progress().update(step_in_epoch, figures_);
}

void TrainingRecords::show_end_of_epoch(const std::map<std::string, double>& values) {
  if (!is_shown_) return;
  std::vector<ProgressFigure> figures;
  for (const auto& [name, value] : values) figures.push_back({value, name});
  context_.progress().end_epoch(std::move(figures));
}

void TrainingRecords::show_evaluation(const std::map<std::string, double>& values) {
  if (!is_shown_) return;
  std::vector<std::string> figures;
  for (const auto& [name, value] : values) figures.push_back(text(name, " ", value));
  context_.progress().print("evaluation: " + join(figures, ", "));
}

std::string TrainingRecords::mlflow_run() const {
  return mlflow_ != nullptr ? mlflow_->run_id().value_or(options_.mlflow_run) : options_.mlflow_run;
}

void TrainingRecords::end(RunStatus status) {
  if (is_shown_) trackers_.end(status);
}

}  // namespace libtrain::detail
