#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <libtrain/base/environment.hpp>
#include <libtrain/observe/tracker.hpp>

namespace libtrain {

/// A run on an MLflow server, over its REST API. Variables of the environment, as for MLflow's own clients:
///
/// - MLFLOW_TRACKING_URI: http, https or azureml (Azure ML sets the last in its jobs)
/// - MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD; they are sent to that server
///   alone, and never shown
/// - MLFLOW_EXPERIMENT_ID or MLFLOW_EXPERIMENT_NAME, which is created if it does not exist; otherwise "Default"
/// - MLFLOW_RUN_ID: a run to continue, instead of a new one
/// - MLFLOW_TRACKING_SERVER_CERT_PATH: a file of certificate authorities
///
/// A call only queues: a thread connects, creates the run, and sends at most 1000 metrics or 100 parameters or tags a
/// request. If the server is down, slow, or answers HTTP 408, 429 or 5xx, one warning says so, and the thread tries
/// again after 0.5 s, then twice as long, up to 30 s, or as long as the server requests (at most 60 s). What the server
/// refuses for good is lost, and reported once. Values beyond `pending_values` are lost. None of this throws, or
/// takes more than microseconds of the caller's time. Any thread may call.
///
/// A request whose answer was lost is sent again: a server that had received it ignores equal metrics, but an empty
/// second run may remain if the answer to the creation was lost.
///
/// Names and values are made to fit MLflow's limits: names have at most 250 characters, of which those other than
/// letters, digits and "_-. /" become "_"; values of parameters are cut to 6000 bytes, those of tags to 5000. Texts
/// become tags; images and histograms are not sent. Artifacts go through the server (`mlflow server` with its default
/// --serve-artifacts). On Azure ML they do not: write them to ./outputs, which the service uploads; nor is a job's
/// status sent, which is the service's.
class MlflowRun final : public Tracker {
 public:
  struct Options {
    std::string run_name = {};
    std::string run_id = {};  ///< a run to continue; if empty, MLFLOW_RUN_ID
    std::chrono::milliseconds send_interval{2000};
    std::size_t pending_values = 100'000;           ///< metrics, parameters and tags
    std::chrono::milliseconds end_timeout{30'000};  ///< how long `end` waits until all is sent
    std::chrono::seconds connect_timeout{10};
    std::chrono::seconds stall_timeout{30};  ///< a request fails if nothing is transferred for so long
    std::chrono::milliseconds first_wait{500};
  };

  /// Does not connect. Throws EnvironmentError for variables that are wrong or missing (above), and if this libtrain
  /// was built without libcurl.
  explicit MlflowRun(const Environment& environment);
  MlflowRun(const Environment& environment, Options options);

  /// Without `end` the run's status becomes FAILED.
  ~MlflowRun() override;

  void log_params(const NamedValues& values) override;
  void log_tags(const NamedValues& values) override;
  void log_metrics(std::string_view event, std::int64_t step, std::span<const Metric> values) override;
  void log_text(std::string_view name, std::int64_t step, std::string_view text) override;
  void log_artifact(const std::filesystem::path& path, std::string_view name) override;

  /// Registers the artifact `artifact` of this run as a new version of the model `name`, after all artifacts so far are
  /// uploaded.
  void register_model(std::string_view name, std::string_view artifact);

  /// Waits at most `end_timeout`, and 2 s for the thread to stop, then warns about what was not sent.
  void end(RunStatus status) override;

  /// std::nullopt until the server has created the run. To be stored with a checkpoint, so that a restart continues it.
  std::optional<std::string> run_id() const;

 private:
  struct Shared;
  class Sender;

  std::chrono::milliseconds end_timeout_;
  std::shared_ptr<Shared> shared_;  // with the thread, which outlives this object if it cannot be stopped
};

/// Downloads the files of a model from the registry into `folder`, which is created, and returns its version.
/// `version` is a number, an alias, or "latest". The server and the credentials are those of `environment`, as above.
/// Tries again for `timeout`; then, and for everything that trying again does not change, throws EnvironmentError with
/// the server's reason. Files that are there already are replaced; each is complete or absent.
std::string fetch_model(const Environment& environment, const std::string& name, const std::filesystem::path& folder,
                        const std::string& version = "latest",
                        std::chrono::milliseconds timeout = std::chrono::minutes{1});

}  // namespace libtrain
