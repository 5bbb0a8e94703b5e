#include <libtrain/observe/detail/mlflow_client.hpp>

#include <algorithm>
#include <cstddef>

#include <nlohmann/json.hpp>

#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

using Json = nlohmann::json;

constexpr std::chrono::minutes kTokenAge{5};
constexpr std::size_t kLongestMessage = 300;
constexpr int kDeepestFolder = 32;

std::string api_url(const MlflowServer& server, const std::string& endpoint) {
  return server.url + "/api/2.0/mlflow/" + endpoint;
}

std::string artifact_url(const MlflowServer& server, const std::string& path) {
  return server.url + "/api/2.0/mlflow-artifacts/artifacts" + (path.empty() ? "" : "/" + percent_encode(path, "/"));
}

std::string with_query(std::string url, const MlflowClient::Query& query) {
  char separator = '?';
  for (const auto& [name, value] : query) {
    url += std::exchange(separator, '&') + name + "=" + percent_encode(value);
  }
  return url;
}

std::string advice_for(long status) {
  if (status == 401 || status == 403) {
    return " Check MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.";
  }
  if (status >= 300 && status < 400) return " Redirects are not followed: set MLFLOW_TRACKING_URI to the final URL.";
  if (status == 404) return " Check the path in MLFLOW_TRACKING_URI.";
  return {};
}

MlflowFailure failure_of(const HttpAnswer& answer) {
  if (answer.status == 0) {
    MlflowFailure failure{answer.failure};
    failure.is_transient = true;
    return failure;
  }
  const auto content = Json::parse(answer.body, nullptr, false);
  const auto member = [&](const char* name) {
    const auto found = content.is_object() ? content.find(name) : content.end();
    return content.is_object() && found != content.end() && found->is_string() ? found->get<std::string>() : "";
  };
  auto message = member("message");
  if (message.size() > kLongestMessage) message = message.substr(0, kLongestMessage) + "...";
  const auto code = member("error_code");
  MlflowFailure failure{text("HTTP ", answer.status, code.empty() ? "" : " " + code,
                             message.empty() ? "." : ": " + message,
                             code.empty() || answer.status < 404 ? advice_for(answer.status) : "")};
  failure.code = code;
  failure.is_transient = answer.status == 408 || answer.status == 429 || answer.status >= 500;
  failure.retry_after = answer.retry_after;
  return failure;
}

Json parsed(const std::string& body) {
  auto content = Json::parse(body, nullptr, false);
  if (content.is_object()) return content;
  MlflowFailure failure{"the answer is not JSON. Check that MLFLOW_TRACKING_URI is the URL of an MLflow server."};
  failure.is_transient = true;  // it may be a proxy's page
  throw failure;
}

}  // namespace

HttpAnswer MlflowClient::send(HttpRequest request) {
  if (!server_.authorization.empty()) request.headers.push_back("Authorization: " + server_.authorization);
  return http_->send(request, stop_);
}

bool MlflowClient::renew_token() {
  if (server_.token_url.empty()) return false;
  token_renewed_ = Clock::now();
  const auto answer = send({.method = "GET", .url = server_.token_url});
  if (answer.status != 200) return false;  // the present one may still be valid
  const auto content = Json::parse(answer.body, nullptr, false);
  const auto token = content.is_object() ? content.value("token", Json{}) : Json{};
  if (!token.is_string() || token.get<std::string>().find_first_of("\r\n") != std::string::npos) return false;
  server_.authorization = "Bearer " + token.get<std::string>();
  return true;
}

void MlflowClient::require_success(HttpRequest request, std::string* body) {
  if (Clock::now() - token_renewed_ > kTokenAge) renew_token();
  auto answer = send(request);
  if ((answer.status == 401 || answer.status == 403) && renew_token()) answer = send(std::move(request));
  if (answer.status < 200 || answer.status >= 300) throw failure_of(answer);
  if (body != nullptr) *body = std::move(answer.body);
}

Json MlflowClient::call(HttpRequest request) {
  request.headers.emplace_back("Content-Type: application/json");
  std::string body;
  require_success(std::move(request), &body);
  return parsed(body);
}

Json MlflowClient::get(const std::string& endpoint, const Query& query) {
  return call({.method = "GET", .url = with_query(api_url(server_, endpoint), query)});
}

Json MlflowClient::post(const std::string& endpoint, const Json& body) {
  return call({.method = "POST",
               .url = api_url(server_, endpoint),
               .body = body.dump(-1, ' ', false, Json::error_handler_t::replace)});
}

void MlflowClient::upload(const std::filesystem::path& file, const std::string& path) {
  require_success({.method = "PUT", .url = artifact_url(server_, path), .upload = file}, nullptr);
}

void MlflowClient::download(const std::string& path, const std::filesystem::path& file) {
  require_success({.method = "GET", .url = artifact_url(server_, path), .download = file}, nullptr);
}

std::vector<std::string> MlflowClient::list(const std::string& path) {
  std::vector<std::string> files;
  std::vector<std::string> folders{""};
  while (!folders.empty()) {
    const auto folder = std::move(folders.back());
    folders.pop_back();
    const auto content =
        call({.method = "GET",
              .url = with_query(artifact_url(server_, ""), {{"path", folder.empty() ? path : path + "/" + folder}})});
    for (const auto& entry : content.value("files", Json::array())) {
      const auto name = entry.value("path", "");
      const auto below = folder.empty() ? name : folder + "/" + name;
      // A server must not make us write outside of the folder, or list for ever.
      const bool is_name = !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
                           name.find('\0') == std::string::npos;
      if (!is_name || std::ranges::count(below, '/') > kDeepestFolder) {
        throw MlflowFailure(text("the server lists a file named '", below, "', which is no name of a file."));
      }
      (entry.value("is_dir", false) ? folders : files).push_back(below);
    }
  }
  return files;
}

std::string percent_encode(std::string_view text, std::string_view keep) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  constexpr std::string_view kUnreserved = "-._~";
  std::string encoded;
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    const bool is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9');
    if (is_letter || kUnreserved.find(character) != std::string_view::npos ||
        keep.find(character) != std::string_view::npos) {
      encoded.push_back(character);
    } else {
      encoded.append({'%', kDigits[byte >> 4], kDigits[byte & 15]});
    }
  }
  return encoded;
}

}  // namespace libtrain::detail
