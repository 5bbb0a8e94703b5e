#include <libtrain/observe/mlflow.hpp>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/observe/detail/mlflow_client.hpp>
#include <libtrain/observe/detail/mlflow_outbox.hpp>

namespace libtrain {
namespace {

namespace fs = std::filesystem;
using detail::MlflowArtifact;
using detail::MlflowClient;
using detail::MlflowCounts;
using detail::MlflowFailure;
using detail::MlflowOutbox;
using std::chrono::milliseconds;

// Limits of MLflow (mlflow/utils/validation.py).
constexpr std::size_t kMetricsOfARequest = 1000;
constexpr std::size_t kValuesOfARequest = 100;
constexpr std::size_t kLongestName = 250;
constexpr std::size_t kLongestParam = 6000;
constexpr std::size_t kLongestTag = 5000;

constexpr milliseconds kLongestWait{30'000};
constexpr milliseconds kLongestWaitAtEnd{1000};
constexpr std::chrono::seconds kLongestRetryAfter{60};
constexpr std::chrono::seconds kStopTime{2};  // for the thread to notice a stop request

std::int64_t milliseconds_since_epoch() {
  return std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string fitting_name(std::string name) {
  constexpr std::string_view kOthers = "_-. /";
  for (auto& character : name) {
    const bool is_letter = (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
                           (character >= '0' && character <= '9');
    if (!is_letter && kOthers.find(character) == std::string_view::npos) character = '_';
  }
  return name.substr(0, kLongestName);
}

NamedValues fitting(const NamedValues& values, std::size_t longest) {
  NamedValues fit;
  for (const auto& [name, value] : values) {
    fit.emplace_back(fitting_name(name), detail::redact_value(name, value).substr(0, longest));
  }
  return fit;
}

// The JSON of protocol buffers writes these three as words.
nlohmann::json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

milliseconds shortened_at_random(milliseconds wait) {
  thread_local std::minstd_rand engine{std::random_device{}()};
  return milliseconds{std::uniform_int_distribution<std::int64_t>{wait.count() / 2, wait.count()}(engine)};
}

}  // namespace

// Guarded by `mutex`, except `stop`, which guards itself.
struct MlflowRun::Shared {
  std::string url;
  mutable std::mutex mutex;
  std::condition_variable wakes_thread;
  std::condition_variable wakes_end;
  MlflowOutbox queued;
  std::size_t held = 0;   // metrics, parameters and tags that are queued or being sent
  std::size_t limit = 0;  // of these
  MlflowCounts lost;
  std::optional<std::string> run_id;
  bool ends = false;
  bool has_ended = false;
  std::stop_source stop;

  // How many of `count` values fit; they count as held, the others as `lost`.
  std::size_t admit(std::size_t count, std::size_t& lost_values) {
    const auto fits = std::min(count, limit - std::min(held, limit));
    held += fits;
    lost_values += count - fits;
    return fits;
  }
};

// The thread. What it has taken from the queue is in `outbox_` until it is sent or lost.
class MlflowRun::Sender {
 public:
  Sender(std::shared_ptr<Shared> shared, MlflowClient client, const Environment& environment, Options options)
      : shared_(std::move(shared)),
        client_(std::move(client)),
        experiment_id_(environment.get("MLFLOW_EXPERIMENT_ID").value_or("")),
        experiment_name_(environment.get("MLFLOW_EXPERIMENT_NAME").value_or("")),
        run_id_(!options.run_id.empty() ? options.run_id : environment.get("MLFLOW_RUN_ID").value_or("")),
        options_(std::move(options)) {}

  void run();

 private:
  // Returns whether the queue is complete: its owner has called end().
  bool take(milliseconds wait, bool has_failed);
  bool send_all();
  bool send_next();
  void find_or_create_run();
  std::string find_or_create_experiment();
  void send_values(const char* kind, NamedValues& values, std::size_t MlflowCounts::* count);
  void send_metrics();
  void send_artifact();
  void register_model();
  void send_status();
  void refuse(const std::string& reason);
  void lose(const MlflowCounts& counts, const std::string& reason);
  milliseconds next_wait(const MlflowFailure& failure, bool is_complete);

  std::shared_ptr<Shared> shared_;
  MlflowClient client_;
  std::string experiment_id_;
  std::string experiment_name_;
  std::string run_id_;
  Options options_;
  MlflowOutbox outbox_;
  std::optional<std::string> artifact_location_;  // once the run is known
  bool is_refused_ = false;                       // the run itself: all is lost
  std::size_t one_by_one_ = 0;                    // so many values are sent alone, after they were refused together
  int failures_ = 0;                              // in a row
  bool has_warned_of_failure_ = false;
  bool has_warned_of_loss_ = false;
};

void MlflowRun::Sender::run() {
  milliseconds wait{0};
  for (bool is_complete = false; !shared_->stop.stop_requested();) {
    is_complete = take(wait, failures_ > 0) || is_complete;
    try {
      if (send_all() && is_complete) break;
      failures_ = 0;
      wait = options_.send_interval;
    } catch (const MlflowFailure& failure) {
      if (!shared_->stop.stop_requested() && !std::exchange(has_warned_of_failure_, true)) {
        log_warning(text("The MLflow server at ", shared_->url, " cannot be used: ", failure.what(),
                         " The training continues; metrics are kept and sent when the server answers."));
      }
      wait = next_wait(failure, is_complete);
    } catch (const std::exception& error) {
      refuse(error.what());
    }
  }
  const std::lock_guard lock{shared_->mutex};
  outbox_.append(std::move(shared_->queued));
  shared_->lost.add(MlflowCounts::of(outbox_));
  shared_->has_ended = true;
  shared_->wakes_end.notify_all();
}

milliseconds MlflowRun::Sender::next_wait(const MlflowFailure& failure, bool is_complete) {
  const auto longest = is_complete ? kLongestWaitAtEnd : kLongestWait;
  const auto doubled = options_.first_wait * (std::int64_t{1} << std::min(failures_++, 10));
  return std::max<milliseconds>(shortened_at_random(std::min(doubled, longest)),
                                std::min(failure.retry_after, kLongestRetryAfter));
}

bool MlflowRun::Sender::take(milliseconds wait, bool has_failed) {
  std::unique_lock lock{shared_->mutex};
  const bool was_ending = shared_->ends;
  // A failed server is left alone for the whole wait, unless the run ends meanwhile.
  shared_->wakes_thread.wait_for(lock, wait, [&] {
    const bool is_due = !has_failed && (shared_->ends || shared_->queued.metrics.size() >= kMetricsOfARequest);
    return shared_->stop.stop_requested() || is_due || (shared_->ends && !was_ending);
  });
  outbox_.append(std::move(shared_->queued));
  return shared_->ends;
}

// Throws MlflowFailure, with a transient failure, if something is left.
bool MlflowRun::Sender::send_all() {
  try {
    if (!artifact_location_ && !is_refused_) find_or_create_run();
  } catch (const MlflowFailure& failure) {
    if (failure.is_transient) throw;
    refuse(failure.what());
  }
  if (is_refused_) {
    const std::lock_guard lock{shared_->mutex};
    shared_->lost.add(MlflowCounts::of(outbox_));
    shared_->held -= outbox_.metrics.size() + outbox_.params.size() + outbox_.tags.size();
    outbox_ = {};
    return true;
  }
  while (send_next()) {
    if (shared_->stop.stop_requested()) return false;
  }
  return true;
}

bool MlflowRun::Sender::send_next() {
  if (!outbox_.params.empty()) {
    send_values("params", outbox_.params, &MlflowCounts::params);
  } else if (!outbox_.tags.empty()) {
    send_values("tags", outbox_.tags, &MlflowCounts::tags);
  } else if (!outbox_.metrics.empty()) {
    send_metrics();
  } else if (!outbox_.artifacts.empty()) {
    send_artifact();
  } else if (!outbox_.registrations.empty()) {
    register_model();
  } else if (outbox_.status) {
    send_status();
  } else {
    return false;
  }
  return true;
}

std::string MlflowRun::Sender::find_or_create_experiment() {
  if (!experiment_id_.empty()) return experiment_id_;
  if (experiment_name_.empty()) return "0";
  try {
    return client_.get("experiments/get-by-name", {{"experiment_name", experiment_name_}})
        .at("experiment")
        .at("experiment_id");
  } catch (const MlflowFailure& failure) {
    if (failure.code != "RESOURCE_DOES_NOT_EXIST") throw;
  }
  return client_.post("experiments/create", {{"name", experiment_name_}}).at("experiment_id");
}

void MlflowRun::Sender::find_or_create_run() try {
  nlohmann::json run;
  if (run_id_.empty()) {
    experiment_id_ = find_or_create_experiment();
    nlohmann::json request{{"experiment_id", experiment_id_}, {"start_time", milliseconds_since_epoch()}};
    if (!options_.run_name.empty()) request["run_name"] = options_.run_name;
    run = client_.post("runs/create", request).at("run");
  } else {
    run = client_.get("runs/get", {{"run_id", run_id_}}).at("run");
    if (!client_.server().is_azure) client_.post("runs/update", {{"run_id", run_id_}, {"status", "RUNNING"}});
  }
  run_id_ = run.at("info").at("run_id");
  artifact_location_ = run.at("info").value("artifact_uri", "");
  const std::lock_guard lock{shared_->mutex};
  shared_->run_id = run_id_;
} catch (const nlohmann::json::exception&) {
  MlflowFailure failure{"its answer has no run. Check that MLFLOW_TRACKING_URI is the URL of an MLflow server."};
  failure.is_transient = true;
  throw failure;
}

void MlflowRun::Sender::send_values(const char* kind, NamedValues& values, std::size_t MlflowCounts::* count) {
  const auto size = one_by_one_ > 0 ? 1 : std::min(values.size(), kValuesOfARequest);
  const auto end = values.begin() + static_cast<std::ptrdiff_t>(size);
  nlohmann::json entries = nlohmann::json::array();
  for (auto value = values.begin(); value != end; ++value) {
    entries.push_back({{"key", value->first}, {"value", value->second}});
  }
  try {
    client_.post("runs/log-batch", {{"run_id", run_id_}, {kind, std::move(entries)}});
  } catch (const MlflowFailure& failure) {
    if (failure.is_transient) throw;
    // One value may be at fault, such as a parameter that the continued run has with another value.
    if (size > 1) {
      one_by_one_ = size;
      return;
    }
    MlflowCounts one;
    one.*count = 1;
    lose(one, text(kind, " '", values.front().first, "': ", failure.what()));
  }
  values.erase(values.begin(), end);
  if (one_by_one_ > 0) --one_by_one_;
  const std::lock_guard lock{shared_->mutex};
  shared_->held -= size;
}

void MlflowRun::Sender::send_metrics() {
  const auto size = std::min(outbox_.metrics.size(), kMetricsOfARequest);
  const auto end = outbox_.metrics.begin() + static_cast<std::ptrdiff_t>(size);
  nlohmann::json entries = nlohmann::json::array();
  for (auto metric = outbox_.metrics.begin(); metric != end; ++metric) {
    entries.push_back({{"key", metric->key},
                       {"value", number(metric->value)},
                       {"timestamp", metric->timestamp_ms},
                       {"step", metric->step}});
  }
  try {
    client_.post("runs/log-batch", {{"run_id", run_id_}, {"metrics", std::move(entries)}});
  } catch (const MlflowFailure& failure) {
    if (failure.is_transient) throw;
    lose({.metrics = size}, failure.what());
  }
  outbox_.metrics.erase(outbox_.metrics.begin(), end);
  const std::lock_guard lock{shared_->mutex};
  shared_->held -= size;
}

// A folder becomes its files, so that after a failure those that were sent are not sent again.
void MlflowRun::Sender::send_artifact() {
  const auto [path, name] = outbox_.artifacts.front();
  try {
    if (fs::is_directory(path)) {
      std::deque<MlflowArtifact> files;
      for (const auto& entry : fs::recursive_directory_iterator(path)) {
        if (!entry.is_regular_file()) continue;
        files.push_back({entry.path(), name + "/" + entry.path().lexically_relative(path).generic_string()});
      }
      outbox_.artifacts.pop_front();
      outbox_.artifacts.insert(outbox_.artifacts.begin(), files.begin(), files.end());
      return;
    }
    const auto folder = detail::proxied_path(*artifact_location_);
    if (folder.empty()) {
      throw MlflowFailure(text("the server does not hand out artifacts; the run's are in '", *artifact_location_,
                               "'. Start it with --serve-artifacts, or on Azure ML, write to ./outputs."));
    }
    client_.upload(path, folder + "/" + name);
  } catch (const MlflowFailure& failure) {
    if (failure.is_transient) throw;
    lose({.artifacts = 1}, text("artifact '", name, "': ", failure.what()));
  } catch (const std::exception& error) {
    lose({.artifacts = 1}, text("artifact '", name, "': ", error.what()));
  }
  outbox_.artifacts.pop_front();
}

void MlflowRun::Sender::register_model() {
  const auto& [model, artifact] = outbox_.registrations.front();
  try {
    try {
      client_.post("registered-models/create", {{"name", model}});
    } catch (const MlflowFailure& failure) {
      if (failure.code != "RESOURCE_ALREADY_EXISTS") throw;
    }
    client_.post("model-versions/create",
                 {{"name", model}, {"source", *artifact_location_ + "/" + artifact}, {"run_id", run_id_}});
  } catch (const MlflowFailure& failure) {
    if (failure.is_transient) throw;
    lose({.registrations = 1}, text("model '", model, "': ", failure.what()));
  }
  outbox_.registrations.pop_front();
}

void MlflowRun::Sender::send_status() {
  const auto* status = *outbox_.status == RunStatus::finished ? "FINISHED"
                       : *outbox_.status == RunStatus::failed ? "FAILED"
                                                              : "KILLED";
  try {
    if (!client_.server().is_azure) {
      client_.post("runs/update", {{"run_id", run_id_}, {"status", status}, {"end_time", milliseconds_since_epoch()}});
    }
  } catch (const MlflowFailure& failure) {
    if (failure.is_transient) throw;
    lose({.statuses = 1}, failure.what());
  }
  outbox_.status.reset();
}

void MlflowRun::Sender::refuse(const std::string& reason) {
  if (std::exchange(is_refused_, true)) return;
  log_warning(text("The run cannot be tracked on the MLflow server at ", shared_->url, ": ", reason,
                   " The training continues without MLflow."));
}

void MlflowRun::Sender::lose(const MlflowCounts& counts, const std::string& reason) {
  if (!std::exchange(has_warned_of_loss_, true)) {
    log_warning(text("The MLflow server at ", shared_->url, " does not take all of the run: ", reason,
                     " The training continues; later losses are counted at its end."));
  }
  const std::lock_guard lock{shared_->mutex};
  shared_->lost.add(counts);
}

MlflowRun::MlflowRun(const Environment& environment) : MlflowRun(environment, Options{}) {}

MlflowRun::MlflowRun(const Environment& environment, Options options)
    : end_timeout_(options.end_timeout), shared_(std::make_shared<Shared>()) {
  auto server = detail::mlflow_server(environment);
  shared_->url = server.url;
  shared_->limit = options.pending_values;
  auto http = detail::make_http_client({.connect_timeout = options.connect_timeout,
                                        .stall_timeout = options.stall_timeout,
                                        .certificate_file = server.certificate_file});
  MlflowClient client{std::move(server), std::move(http), shared_->stop.get_token()};
  std::thread{[sender = std::make_unique<Sender>(shared_, std::move(client), environment, std::move(options))] {
    sender->run();
  }}.detach();
}

MlflowRun::~MlflowRun() {
  end(RunStatus::failed);
}

void MlflowRun::log_params(const NamedValues& values) {
  auto fit = fitting(values, kLongestParam);
  const std::lock_guard lock{shared_->mutex};
  fit.resize(shared_->admit(fit.size(), shared_->lost.params));
  shared_->queued.append({.params = std::move(fit)});
}

void MlflowRun::log_tags(const NamedValues& values) {
  auto fit = fitting(values, kLongestTag);
  const std::lock_guard lock{shared_->mutex};
  fit.resize(shared_->admit(fit.size(), shared_->lost.tags));
  shared_->queued.append({.tags = std::move(fit)});
}

void MlflowRun::log_metrics(std::string_view event, std::int64_t step, std::span<const Metric> values) {
  const auto now = milliseconds_since_epoch();
  const std::lock_guard lock{shared_->mutex};
  for (const auto& [name, value] : values.first(shared_->admit(values.size(), shared_->lost.metrics))) {
    shared_->queued.metrics.push_back({fitting_name(metric_name(event, name)), value, now, step});
  }
}

void MlflowRun::log_text(std::string_view name, std::int64_t /*step*/, std::string_view text) {
  log_tags({{std::string{name}, std::string{text}}});
}

void MlflowRun::log_artifact(const fs::path& path, std::string_view name) {
  const std::lock_guard lock{shared_->mutex};
  shared_->queued.artifacts.push_back({path, std::string{name}});
}

void MlflowRun::register_model(std::string_view name, std::string_view artifact) {
  const std::lock_guard lock{shared_->mutex};
  shared_->queued.registrations.push_back({std::string{name}, std::string{artifact}});
}

void MlflowRun::end(RunStatus status) {
  std::unique_lock lock{shared_->mutex};
  if (std::exchange(shared_->ends, true)) return;
  shared_->queued.status = status;
  shared_->wakes_thread.notify_all();
  const auto has_ended = [&] { return shared_->has_ended; };
  if (!shared_->wakes_end.wait_for(lock, end_timeout_, has_ended)) {
    shared_->stop.request_stop();
    shared_->wakes_thread.notify_all();
    shared_->wakes_end.wait_for(lock, kStopTime, has_ended);
  }
  const auto lost = shared_->lost.words();
  const bool is_known = shared_->has_ended;
  lock.unlock();
  if (!is_known) {
    log_warning(text("The MLflow server at ", shared_->url,
                     " did not answer until the end of the run; the last values "
                     "are missing there."));
  } else if (!lost.empty()) {
    log_warning(text("These did not reach the MLflow server at ", shared_->url, ": ", lost,
                     ". The metrics are in metrics.jsonl."));
  }
}

std::optional<std::string> MlflowRun::run_id() const {
  const std::lock_guard lock{shared_->mutex};
  return shared_->run_id;
}

}  // namespace libtrain
