#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/detail/location.hpp>
#include <libtrain/data/storage/detail/storage_failure.hpp>
#include <libtrain/data/storage/storage_options.hpp>

namespace arrow {
class Status;
}
namespace arrow::fs {
class FileSystem;
}

namespace libtrain::data::detail {

/// Arrow's client of an object store.
struct RemoteFileSystem {
  std::shared_ptr<arrow::fs::FileSystem> file_system = {};
  std::vector<std::string> secrets = {};  ///< masked in all messages
  std::string signed_with = {};           ///< for messages: the credentials of its requests
  std::string endpoint = {};              ///< a URL of the service, with the account if there is one
};

/// A request to an object store failed.
class RequestError : public EnvironmentError {
 public:
  RequestError(FailureKind kind, const std::string& message) : EnvironmentError(message), kind_(kind) {}

  FailureKind kind() const noexcept { return kind_; }

 private:
  FailureKind kind_;
};

/// The phase of a request, for messages: a missing file does not exist, was deleted after it was opened, or cannot be
/// written because its container or bucket does not exist.
enum class RequestPhase { opening, reading, writing };

/// A client of an object store. It retries requests that may succeed later, logs one warning for a whole outage, and
/// throws errors that name the subject of the request and nothing secret. Shared by a storage and its open files. Any
/// thread may use it.
class ArrowConnection {
 public:
  /// One request. Returns Arrow's status, or throws RequestError.
  using Request = std::function<arrow::Status()>;

  /// Makes the client for `location` with the endpoints and credentials in `options` and their environment. The first
  /// location in S3 starts AWS's library, which is shut down when the program exits.
  /// Throws EnvironmentError if they are inconsistent, UsageError for a local location.
  ArrowConnection(const Location& location, StorageOptions options);

  arrow::fs::FileSystem& file_system() const { return *remote_.file_system; }
  const std::string& endpoint() const { return remote_.endpoint; }
  const StorageOptions& options() const { return options_; }

  /// Makes a request until it succeeds. `subject` begins messages: "File 'az://c/x', byte offset 3".
  /// Throws RequestError if the file is missing or has changed; StorageUnavailable if the store denies access, cannot
  /// be reached, fails for longer than StorageOptions::retry allows, or returns any other error.
  void call(const std::string& subject, RequestPhase phase, const Request& request) const;

 private:
  std::optional<StorageFailure> failure_of(const Request& request) const;
  std::string explanation(const StorageFailure& failure, RequestPhase phase) const;
  bool may_pass(FailureKind kind) const;
  void warn(const std::string& failure) const;

  RemoteFileSystem remote_;
  StorageOptions options_;
  mutable std::atomic<bool> has_answered_{false};
  mutable std::atomic<std::int64_t> next_warning_{0};  // nanoseconds on the steady clock
};

}  // namespace libtrain::data::detail
