#include <libtrain/data/storage/detail/arrow_connection.hpp>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include <arrow/filesystem/azurefs.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/filesystem/gcsfs.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/util/io_util.h>

#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/azure.hpp>
#include <libtrain/data/storage/detail/stop_scope.hpp>
#include <libtrain/data/storage/retry.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::chrono::nanoseconds kWarningInterval = std::chrono::seconds{30};

// Google's client retries on its own for this time; then libtrain retries, which can be stopped.
constexpr double kGcsRetrySeconds = 10.0;

[[noreturn]] void fail_to_connect(const std::string& name, std::string_view reason,
                                  const std::vector<std::string>& secrets) {
  throw EnvironmentError(text("'", name, "' cannot be opened: ", printable_reason(reason, secrets), "."));
}

// The value of `result`; throws EnvironmentError if there is none.
template <typename Value>
Value value_of(arrow::Result<Value> result, const std::string& name, const std::vector<std::string>& secrets) {
  if (!result.ok()) fail_to_connect(name, result.status().message(), secrets);
  return std::move(result).ValueUnsafe();
}

arrow::Status set_credential(arrow::fs::AzureOptions& options, const AzureConnection& connection) {
  switch (connection.credential) {
    case AzureCredential::anonymous:
      return options.ConfigureAnonymousCredential();
    case AzureCredential::account_key:
      return options.ConfigureAccountKeyCredential(connection.secret);
    case AzureCredential::sas_token:
      return options.ConfigureSASCredential(text('?', connection.secret));
    case AzureCredential::managed_identity:
      return options.ConfigureManagedIdentityCredential(connection.secret);
    case AzureCredential::default_chain:
      break;
  }
  return options.ConfigureDefaultCredential();
}

void connect_azure(RemoteFileSystem& remote, const Location& location, const StorageOptions& options) {
  const auto connection = azure_connection(location, options.access, options.environment);
  remote.signed_with = connection.signed_with;
  remote.endpoint = connection.blob_authority.starts_with('.')
                        ? text(connection.scheme, "://", connection.account, connection.blob_authority)
                        : text(connection.scheme, "://", connection.blob_authority, '/', connection.account);
  if (connection.credential == AzureCredential::account_key) remote.secrets = {connection.secret};
  if (connection.credential == AzureCredential::sas_token) {
    remote.secrets = {connection.secret, std::string{query_parameter(connection.secret, "sig")}};
  }
  arrow::fs::AzureOptions azure;
  azure.account_name = connection.account;
  azure.blob_storage_authority = connection.blob_authority;
  azure.dfs_storage_authority = connection.dfs_authority;
  azure.blob_storage_scheme = connection.scheme;
  azure.dfs_storage_scheme = connection.scheme;
  azure.background_writes = false;  // on Arrow's threads, a credential that cannot be renewed would end the process
  if (const auto status = set_credential(azure, connection); !status.ok()) {
    fail_to_connect(location.name, status.message(), remote.secrets);
  }
  remote.file_system = value_of(arrow::fs::AzureFileSystem::Make(azure), location.name, remote.secrets);
}

void start_s3(const std::string& name) {
  if (const auto status = arrow::fs::EnsureS3Initialized(); !status.ok()) fail_to_connect(name, status.message(), {});
}

// Exit handlers and the destructors of static objects run in reverse order of registration. This one must run before
// the destructors of Arrow's objects, so it is registered after the first client has been made. It is also registered
// if no client could be made, or the program would crash at exit; the first client then registers it again.
void stop_s3_at_exit(std::once_flag& once) {
  std::call_once(once, [] { std::atexit([] { static_cast<void>(arrow::fs::EnsureS3Finalized()); }); });
}

std::string first_of(const Environment& environment, std::string_view name, std::string_view otherwise) {
  if (auto value = environment.get(name)) return *std::move(value);
  return environment.get(otherwise).value_or("");
}

// Scheme and authority of the S3 endpoint in the environment, if it has one.
std::optional<Uri> s3_endpoint(const Environment& environment) {
  const auto url = first_of(environment, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
  if (url.empty()) return std::nullopt;
  auto uri = split_uri(url);
  if (!uri || !uri->authority || uri->authority->empty() || (uri->scheme != "http" && uri->scheme != "https") ||
      (!uri->path.empty() && uri->path != "/") || uri->query || uri->authority->find('@') != std::string::npos) {
    throw EnvironmentError(
        text("The endpoint of S3 is '", uri ? uri->name : "",
             "' (AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL). Set it to http://HOST:PORT or https://HOST."));
  }
  return uri;
}

void make_s3_client(RemoteFileSystem& remote, const Location& location, const StorageOptions& options,
                    const std::optional<Uri>& endpoint) {
  const auto& environment = options.environment;
  auto s3 =
      options.access == StorageAccess::anonymous ? arrow::fs::S3Options::Anonymous() : arrow::fs::S3Options::Defaults();
  const auto key = environment.get("AWS_ACCESS_KEY_ID");
  const auto secret = environment.get("AWS_SECRET_ACCESS_KEY");
  if (options.access == StorageAccess::anonymous) {
    remote.signed_with = kAnonymous;
  } else if (options.access == StorageAccess::automatic && key && secret) {
    const auto session = environment.get("AWS_SESSION_TOKEN").value_or("");
    s3.ConfigureAccessKey(*key, *secret, session);
    remote.secrets = {*secret, session};
    remote.signed_with = "the key that AWS_ACCESS_KEY_ID names";
  } else {
    remote.signed_with = "the identity that AWS's client found";
  }
  s3.region = first_of(environment, "AWS_REGION", "AWS_DEFAULT_REGION");
  if (endpoint) {
    s3.scheme = endpoint->scheme;
    s3.endpoint_override = *endpoint->authority;
  } else if (s3.region.empty()) {
    s3.region = value_of(arrow::fs::ResolveS3BucketRegion(location.container), location.name, remote.secrets);
  }
  remote.file_system = value_of(arrow::fs::S3FileSystem::Make(s3), location.name, remote.secrets);
}

void connect_s3(RemoteFileSystem& remote, const Location& location, const StorageOptions& options) {
  static std::once_flag with_client;
  static std::once_flag without_client;
  const auto endpoint = s3_endpoint(options.environment);
  remote.endpoint =
      endpoint ? text(endpoint->scheme, "://", lower_case(*endpoint->authority)) : "https://amazonaws.com";
  start_s3(location.name);
  try {
    make_s3_client(remote, location, options, endpoint);
  } catch (...) {
    stop_s3_at_exit(without_client);
    throw;
  }
  stop_s3_at_exit(with_client);
}

void connect_gcs(RemoteFileSystem& remote, const Location& location, const StorageOptions& options) {
  const bool is_anonymous = options.access == StorageAccess::anonymous;
  auto gcs = is_anonymous ? arrow::fs::GcsOptions::Anonymous() : arrow::fs::GcsOptions::Defaults();
  remote.endpoint =
      options.environment.get("CLOUD_STORAGE_EMULATOR_ENDPOINT").value_or("https://storage.googleapis.com");
  gcs.scheme = "https";
  gcs.retry_limit_seconds = kGcsRetrySeconds;
  remote.signed_with = is_anonymous ? kAnonymous : "Google's application default credentials";
  remote.file_system = value_of(arrow::fs::GcsFileSystem::Make(gcs), location.name, remote.secrets);
}

void connect(RemoteFileSystem& remote, const Location& location, const StorageOptions& options) {
  switch (location.kind) {
    case StorageKind::azure:
      return connect_azure(remote, location, options);
    case StorageKind::s3:
      return connect_s3(remote, location, options);
    case StorageKind::gcs:
      return connect_gcs(remote, location, options);
    case StorageKind::local:
      break;
  }
  throw UsageError(text("'", location.name, "' is a local path, not a location in an object store."));
}

RemoteFileSystem connect_file_system(const Location& location, const StorageOptions& options) {
  RemoteFileSystem remote;
  try {
    connect(remote, location, options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    // Exceptions of the stores' own libraries pass through Arrow, such as for a certificate that cannot be read.
    fail_to_connect(location.name, error.what(), remote.secrets);
  }
  return remote;
}

}  // namespace

ArrowConnection::ArrowConnection(const Location& location, StorageOptions options)
    : remote_(connect_file_system(location, options)), options_(std::move(options)) {}

std::optional<StorageFailure> ArrowConnection::failure_of(const Request& request) const {
  try {
    const arrow::Status status = request();
    if (status.ok()) return std::nullopt;
    auto failure = classify_failure(status.message(), remote_.secrets);
    // Arrow marks what was not found by ENOENT, and drops the store's words; on GCS also a token that was not found.
    if (failure.kind != FailureKind::unreachable && arrow::internal::ErrnoFromStatus(status) == ENOENT) {
      failure.kind = FailureKind::missing;
    }
    return failure;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    // Arrow converts failed requests to a status, but missing credentials are an exception.
    return classify_failure(error.what(), remote_.secrets);
  }
}

std::string ArrowConnection::explanation(const StorageFailure& failure, RequestPhase phase) const {
  const bool is_open = phase == RequestPhase::reading;
  switch (failure.kind) {
    case FailureKind::missing:
      if (phase == RequestPhase::writing) return "its container or bucket does not exist";
      return is_open ? "it was deleted after it was opened" : "it does not exist";
    case FailureKind::refused:
      return text("access was refused: ", failure.reason, ". The request used ", remote_.signed_with);
    case FailureKind::changed:
      return is_open ? text("it has changed since it was opened: ", failure.reason) : failure.reason;
    case FailureKind::unreachable:
      return text("the request could not be sent: ", failure.reason, ". It uses ", remote_.signed_with);
    case FailureKind::transient:
      return text("the store failed or did not answer: ", failure.reason);
    case FailureKind::unknown:
      break;
  }
  return text("the request failed: ", failure.reason,
              ". The response does not show a fault of the file. The request used ", remote_.signed_with,
              ". Check that its credentials have not expired, that this machine's clock is correct, and that it trusts "
              "the store's certificate");
}

bool ArrowConnection::may_pass(FailureKind kind) const {
  if (kind == FailureKind::unreachable) return has_answered_.load(std::memory_order_relaxed);
  return kind == FailureKind::transient;
}

void ArrowConnection::warn(const std::string& failure) const {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  auto next = next_warning_.load(std::memory_order_relaxed);
  const std::int64_t nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  if (nanoseconds < next) return;
  // The thread that postpones the next warning logs this one.
  if (!next_warning_.compare_exchange_strong(next, nanoseconds + kWarningInterval.count())) return;
  log_warning(text(failure, " Trying again for up to ",
                   std::chrono::duration_cast<std::chrono::seconds>(options_.retry.deadline).count(), " s."));
}

void ArrowConnection::call(const std::string& subject, RequestPhase phase, const Request& request) const {
  const auto once = [&] {
    const auto failure = failure_of(request);
    if (!failure || failure->kind == FailureKind::missing || failure->kind == FailureKind::refused) {
      has_answered_.store(true, std::memory_order_relaxed);
    }
    if (failure) throw RequestError(failure->kind, text(subject, ": ", explanation(*failure, phase), "."));
  };
  const auto is_transient = [&](const std::exception& error) {
    const auto* failure = dynamic_cast<const RequestError*>(&error);
    if (failure == nullptr || !may_pass(failure->kind())) return false;
    if (options_.retry.deadline > std::chrono::milliseconds::zero()) warn(failure->what());
    return true;
  };
  RetryTimer timer;
  std::stop_source stop;
  const auto request_stop = [&stop] { stop.request_stop(); };
  const std::stop_callback by_user(options_.stop, request_stop);
  const std::stop_callback by_thread(StopScope::of_this_thread(), request_stop);
  try {
    retry(options_.retry, timer, stop.get_token(), once, is_transient);
  } catch (const RequestError& failure) {
    if (is_about_the_file(failure.kind())) throw;
    throw StorageUnavailable(failure.what());
  } catch (const EnvironmentError& failure) {  // the retries are over
    throw StorageUnavailable(failure.what());
  }
}

}  // namespace libtrain::data::detail
