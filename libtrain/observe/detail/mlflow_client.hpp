#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <libtrain/observe/detail/http.hpp>
#include <libtrain/observe/detail/mlflow_server.hpp>

namespace libtrain::detail {

/// A request to an MLflow server failed. `what()` says how, without secrets, in a phrase.
class MlflowFailure : public std::runtime_error {
 public:
  /// Whether the same request may succeed later: no connection, HTTP 408, 429 or 5xx, or an answer that is no JSON.
  bool is_transient = false;
  std::string code = {};  ///< the server's error_code, such as RESOURCE_DOES_NOT_EXIST
  std::chrono::seconds retry_after{0};

  using std::runtime_error::runtime_error;
};

/// Makes single attempts at requests of MLflow's REST API 2.0 (mlflow.org, "REST API"). All requests throw
/// MlflowFailure. On Azure ML it renews the token of a job every five minutes, and when the server refuses it. Used by
/// one thread at a time.
class MlflowClient {
 public:
  using Query = std::vector<std::pair<std::string, std::string>>;

  MlflowClient(MlflowServer server, std::unique_ptr<HttpClient> http, std::stop_token stop)
      : server_(std::move(server)), http_(std::move(http)), stop_(std::move(stop)) {}

  const MlflowServer& server() const { return server_; }

  /// `endpoint` is the part after /api/2.0/mlflow/, such as "runs/get".
  nlohmann::json get(const std::string& endpoint, const Query& query);
  nlohmann::json post(const std::string& endpoint, const nlohmann::json& body);

  /// Artifacts that the server hands out; `path` as proxied_path() returns it. Throw EnvironmentError for local files
  /// that cannot be read or written.
  void upload(const std::filesystem::path& file, const std::string& path);
  void download(const std::string& path, const std::filesystem::path& file);

  /// The paths of all files below `path`, relative to it.
  std::vector<std::string> list(const std::string& path);

 private:
  using Clock = std::chrono::steady_clock;

  nlohmann::json call(HttpRequest request);
  void require_success(HttpRequest request, std::string* body);
  HttpAnswer send(HttpRequest request);
  bool renew_token();

  MlflowServer server_;
  std::unique_ptr<HttpClient> http_;
  std::stop_token stop_;
  Clock::time_point token_renewed_ = Clock::now();
};

}  // namespace libtrain::detail
