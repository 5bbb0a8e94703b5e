#include <libtrain/observe/detail/mlflow_server.hpp>

#include <openssl/evp.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

std::string base64(const std::string& bytes) {
  std::vector<unsigned char> encoded(4 * (bytes.size() / 3 + 1) + 1);
  const auto length = EVP_EncodeBlock(encoded.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                                      static_cast<int>(bytes.size()));
  return {encoded.begin(), encoded.begin() + length};
}

// In the order of MLflow's own clients.
std::string authorization_of(const Environment& environment) {
  const auto user = environment.get("MLFLOW_TRACKING_USERNAME");
  const auto password = environment.get("MLFLOW_TRACKING_PASSWORD");
  if (user.has_value() != password.has_value()) {
    throw EnvironmentError(
        "Only one of MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD is set. Set both, or neither.");
  }
  std::string value;
  if (user) {
    value = "Basic " + base64(*user + ":" + *password);
  } else if (const auto token = environment.get("MLFLOW_TRACKING_TOKEN")) {
    value = "Bearer " + *token;
  }
  if (value.find_first_of("\r\n") != std::string::npos) {
    throw EnvironmentError("MLFLOW_TRACKING_TOKEN contains a line break. Set it to the token alone.");
  }
  return value;
}

// https://<host>/mlflow/v1.0/<workspace> -> https://<host>/history/v1.0/<workspace>/experimentids/../runs/../token
std::string token_url_of(const std::string& url, const Environment& environment) {
  const auto experiment = environment.get("MLFLOW_EXPERIMENT_ID");
  const auto run = environment.get("MLFLOW_RUN_ID");
  constexpr std::string_view kPart = "/mlflow/v";
  const auto begin = url.find(kPart);
  if (!experiment || !run || begin == std::string::npos) return {};
  const auto end = url.find('/', begin + kPart.size());
  if (end == std::string::npos) return {};
  return url.substr(0, begin) + "/history/v1.0" + url.substr(end) + "/experimentids/" + *experiment + "/runs/" + *run +
         "/token";
}

}  // namespace

MlflowServer mlflow_server(const Environment& environment) {
  const auto uri = environment.get("MLFLOW_TRACKING_URI");
  if (!uri) throw EnvironmentError("MLFLOW_TRACKING_URI is not set. Set it to the URL of an MLflow server.");
  MlflowServer server;
  server.url = uri->substr(0, uri->find_first_of("?#"));
  server.is_azure = server.url.starts_with("azureml://");
  if (server.is_azure) server.url.replace(0, std::string_view{"azureml"}.size(), "https");
  while (server.url.ends_with('/')) server.url.pop_back();
  const auto scheme_end = server.url.find("://");
  const auto scheme = server.url.substr(0, scheme_end == std::string::npos ? 0 : scheme_end);
  if ((scheme != "http" && scheme != "https") || server.url.size() == scheme.size() + 3) {
    throw EnvironmentError(text("MLFLOW_TRACKING_URI is '", *uri,
                                "', but libtrain tracks on servers: http, https or azureml. Start one with `mlflow "
                                "server`, or unset the variable."));
  }
  if (server.url.find('@') != std::string::npos) {
    throw EnvironmentError(
        "MLFLOW_TRACKING_URI contains a user name. Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead.");
  }
  server.authorization = authorization_of(environment);
  if (server.is_azure) {
    if (server.authorization.empty()) {
      throw EnvironmentError(
          "MLFLOW_TRACKING_URI names an Azure ML workspace, but MLFLOW_TRACKING_TOKEN is not set. "
          "Azure ML sets it in jobs; elsewhere, set it to an access token.");
    }
    server.token_url = token_url_of(server.url, environment);
  }
  server.certificate_file = environment.get("MLFLOW_TRACKING_SERVER_CERT_PATH").value_or("");
  return server;
}

std::string proxied_path(const std::string& location) {
  constexpr std::string_view kScheme = "mlflow-artifacts:";
  if (!location.starts_with(kScheme)) return {};
  auto path = location.substr(kScheme.size());
  if (path.starts_with("//")) path = path.substr(std::min(path.find('/', 2), path.size()));
  path.erase(0, path.find_first_not_of('/'));
  return path;
}

}  // namespace libtrain::detail
