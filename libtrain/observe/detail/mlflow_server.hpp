#pragma once

#include <string>

#include <libtrain/base/environment.hpp>

namespace libtrain::detail {

/// How to reach an MLflow server. `authorization` is a secret.
struct MlflowServer {
  std::string url;               ///< without a slash at the end; /api/2.0/mlflow/... follows
  std::string authorization;     ///< the header's value, such as "Bearer ..."; empty without credentials
  std::string token_url;         ///< on Azure ML inside a job: where to renew the token; empty elsewhere
  std::string certificate_file;  ///< MLFLOW_TRACKING_SERVER_CERT_PATH
  bool is_azure = false;
};

/// Reads MLFLOW_TRACKING_URI, the credentials, and for `azureml://` the run's identifiers, from `environment`. Throws
/// EnvironmentError that names the variable if it is unset, or is no http, https or azureml URL with a host.
MlflowServer mlflow_server(const Environment& environment);

/// The path below /api/2.0/mlflow-artifacts/artifacts of an artifact's location `mlflow-artifacts:/0/..`; empty for
/// locations that the server does not hand out, such as `s3://..`.
std::string proxied_path(const std::string& location);

}  // namespace libtrain::detail
