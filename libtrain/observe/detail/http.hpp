#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace libtrain::detail {

struct HttpRequest {
  std::string method;                     ///< GET, POST, PUT or PATCH
  std::string url;                        ///< http or https
  std::vector<std::string> headers = {};  ///< "Name: value"
  std::string body = {};
  std::filesystem::path upload = {};    ///< if not empty, the file to send as the body
  std::filesystem::path download = {};  ///< if not empty, the file to which the content of a 2xx answer goes
};

struct HttpAnswer {
  long status = 0;           ///< 0: no complete answer
  std::string body = {};     ///< at most 16 MiB
  std::string failure = {};  ///< if there was no complete answer, why: a phrase without the URL
  std::chrono::seconds retry_after{0};
};

struct HttpOptions {
  std::chrono::seconds connect_timeout{10};
  std::chrono::seconds stall_timeout{30};  ///< a request fails if not a byte is transferred for so long
  std::string certificate_file = {};       ///< certificate authorities instead of the system's
};

/// Sends requests one after another, over connections that stay open. Certificates are always verified; redirects are
/// not followed, because a token must not reach another host. Proxies are those of the usual variables (https_proxy).
/// Used by one thread at a time.
class HttpClient {
 public:
  HttpClient() = default;
  HttpClient(const HttpClient&) = delete;  // owns connections
  HttpClient& operator=(const HttpClient&) = delete;
  virtual ~HttpClient() = default;

  /// Failures of the network are in the answer. Ends within about a second of a stop request. Throws EnvironmentError
  /// if a local file cannot be read or written. A downloaded file is complete or absent.
  virtual HttpAnswer send(const HttpRequest& request, const std::stop_token& stop) = 0;
};

/// Throws EnvironmentError if this libtrain was built without libcurl.
std::unique_ptr<HttpClient> make_http_client(const HttpOptions& options);

/// All bytes but letters, digits, and "-._~" as %XX; `keep` stay as well.
std::string percent_encode(std::string_view text, std::string_view keep = {});

}  // namespace libtrain::detail
