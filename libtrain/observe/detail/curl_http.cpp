#include <curl/curl.h>
#include <dlfcn.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <system_error>

#include <libtrain/base/error.hpp>
#include <libtrain/base/output_file.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/observe/detail/http.hpp>

namespace libtrain::detail {

namespace {

constexpr std::size_t kLongestBody = 16 << 20;

// libcurl, loaded when it is first used: linked, it and the 30 libraries that it brings would be loaded by every
// program that could track on MLflow, which takes as long as loading some of LibTorch.
struct Curl {
  // Throws EnvironmentError if it is not there.
  static const Curl& loaded() {
    static const Curl curl;
    return curl;
  }

  decltype(&curl_easy_init) init = nullptr;
  decltype(&curl_easy_cleanup) cleanup = nullptr;
  decltype(&curl_easy_reset) reset = nullptr;
  decltype(&curl_easy_setopt) setopt = nullptr;
  decltype(&curl_easy_perform) perform = nullptr;
  decltype(&curl_easy_getinfo) getinfo = nullptr;
  decltype(&curl_easy_strerror) strerror = nullptr;
  decltype(&curl_slist_append) append = nullptr;
  decltype(&curl_slist_free_all) free_all = nullptr;

 private:
  Curl() {
    void* const library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) fail(dlerror());
    decltype(&curl_global_init) global_init = nullptr;
    find(library, "curl_global_init", global_init);
    find(library, "curl_easy_init", init);
    find(library, "curl_easy_cleanup", cleanup);
    find(library, "curl_easy_reset", reset);
    find(library, "curl_easy_setopt", setopt);
    find(library, "curl_easy_perform", perform);
    find(library, "curl_easy_getinfo", getinfo);
    find(library, "curl_easy_strerror", strerror);
    find(library, "curl_slist_append", append);
    find(library, "curl_slist_free_all", free_all);
    if (const auto code = global_init(CURL_GLOBAL_DEFAULT); code != CURLE_OK) fail(strerror(code));
  }

  template <typename Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) fail(dlerror());
  }

  [[noreturn]] static void fail(const char* reason) {
    throw EnvironmentError(text("Cannot load libcurl, which MLflow needs: ", reason,
                                ". Install it (Debian: libcurl4), or unset MLFLOW_TRACKING_URI."));
  }
};

struct FreeList {
  void operator()(curl_slist* list) const { Curl::loaded().free_all(list); }
};
struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using Headers = std::unique_ptr<curl_slist, FreeList>;
using OpenFile = std::unique_ptr<std::FILE, CloseFile>;

// What the callbacks of one request see. An exception must not pass through libcurl: it is kept until the call returns.
struct Transfer {
  CURL* handle;
  const HttpRequest& request;
  const std::stop_token& stop;
  HttpAnswer answer = {};
  std::optional<OutputFile> download = {};
  std::exception_ptr error = {};

  bool has_succeeded() const {
    long status = 0;
    Curl::loaded().getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200 && status < 300;
  }
};

std::size_t receive(char* bytes, std::size_t size, std::size_t count, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  const std::string_view part{bytes, size * count};
  try {
    if (!transfer.request.download.empty() && transfer.has_succeeded()) {
      if (!transfer.download) transfer.download.emplace(transfer.request.download.string());
      transfer.download->write(part);
    } else if (transfer.answer.body.size() + part.size() > kLongestBody) {
      transfer.answer.failure = "the answer is longer than 16 MiB";
      return 0;
    } else {
      transfer.answer.body += part;
    }
  } catch (...) {
    transfer.error = std::current_exception();
    return 0;
  }
  return part.size();
}

// Called at least once a second; anything but 0 ends the transfer.
int is_stopped(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Transfer*>(context)->stop.stop_requested() ? 1 : 0;
}

class CurlClient final : public HttpClient {
 public:
  explicit CurlClient(HttpOptions options) : options_(std::move(options)) {
    if (handle_ == nullptr) throw EnvironmentError("libcurl cannot be initialized. Check its installation.");
  }
  ~CurlClient() override { curl_.cleanup(handle_); }

  HttpAnswer send(const HttpRequest& request, const std::stop_token& stop) override;

 private:
  template <typename Value>
  void set(CURLoption option, Value value) {
    if (const auto code = curl_.setopt(handle_, option, value); code != CURLE_OK) {
      throw EnvironmentError(
          text("libcurl refuses option ", static_cast<int>(option), ": ", curl_.strerror(code), ". Update libcurl."));
    }
  }

  void set_common(Transfer& transfer, char* message);
  OpenFile set_body(const HttpRequest& request);

  const Curl& curl_ = Curl::loaded();
  HttpOptions options_;
  CURL* handle_ = curl_.init();
};

void CurlClient::set_common(Transfer& transfer, char* message) {
  set(CURLOPT_ERRORBUFFER, message);
  set(CURLOPT_URL, transfer.request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (!options_.certificate_file.empty()) set(CURLOPT_CAINFO, options_.certificate_file.c_str());
  set(CURLOPT_USERAGENT, "libtrain");
  set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(options_.connect_timeout.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.stall_timeout.count()));
  set(CURLOPT_WRITEFUNCTION, &receive);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &is_stopped);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&transfer));
}

OpenFile CurlClient::set_body(const HttpRequest& request) {
  OpenFile file;
  if (!request.upload.empty()) {
    file.reset(std::fopen(request.upload.c_str(), "rb"));
    std::error_code error;
    const auto size = std::filesystem::file_size(request.upload, error);
    if (!file || error) {
      const int code = file ? error.value() : errno;
      throw EnvironmentError(text("Cannot read '", request.upload.string(),
                                  "' to upload it: ", std::system_category().message(code), "."));
    }
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_READDATA, static_cast<void*>(file.get()));
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(size));
  } else if (request.method != "GET") {
    set(CURLOPT_POSTFIELDS, request.body.c_str());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  }
  set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  return file;
}

HttpAnswer CurlClient::send(const HttpRequest& request, const std::stop_token& stop) {
  curl_.reset(handle_);  // keeps the connections
  char message[CURL_ERROR_SIZE] = "";
  Transfer transfer{handle_, request, stop};
  set_common(transfer, message);
  Headers headers;
  for (const auto& header : request.headers) {
    headers.reset(curl_.append(headers.release(), header.c_str()));
  }
  headers.reset(curl_.append(headers.release(), "Expect:"));  // do not wait for "100 Continue"
  set(CURLOPT_HTTPHEADER, headers.get());
  const auto file = set_body(request);

  const auto code = curl_.perform(handle_);
  if (transfer.error) std::rethrow_exception(transfer.error);
  auto& answer = transfer.answer;
  if (code != CURLE_OK) {
    if (answer.failure.empty()) answer.failure = *message != '\0' ? message : curl_.strerror(code);
    return answer;
  }
  curl_.getinfo(handle_, CURLINFO_RESPONSE_CODE, &answer.status);
  curl_off_t retry_after_s = 0;
  curl_.getinfo(handle_, CURLINFO_RETRY_AFTER, &retry_after_s);
  answer.retry_after = std::chrono::seconds{retry_after_s};
  if (!request.download.empty() && transfer.has_succeeded()) {
    if (!transfer.download) transfer.download.emplace(request.download.string());  // an empty file
    transfer.download->commit();
  }
  return answer;
}

}  // namespace

std::unique_ptr<HttpClient> make_http_client(const HttpOptions& options) {
  return std::make_unique<CurlClient>(options);
}

}  // namespace libtrain::detail
