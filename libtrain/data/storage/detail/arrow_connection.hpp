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
  std::vector<std::string> secrets = {};  ///< what no message may hold
  std::string signed_with = {};           ///< for messages: what its requests are signed with
  std::string endpoint = {};              ///< a URL of the service, and of the account where there is one
};

/// A request to an object store failed.
class RequestError : public EnvironmentError {
 public:
  RequestError(FailureKind kind, const std::string& message) : EnvironmentError(message), kind_(kind) {}

  FailureKind kind() const noexcept { return kind_; }

 private:
  FailureKind kind_;
};

/// What a request is for, since messages differ: a file that cannot be found was never there, or was deleted.
enum class RequestPhase { opening, reading };

/// A client of an object store and the way in which all its requests are made: tried again while that makes sense,
/// with one warning for a whole outage, and with errors that name what was asked for and nothing secret. Shared by a
/// storage and its open files. Any thread may use it.
class ArrowConnection {
 public:
  /// One request. Arrow's status says how it ended; RequestError may be thrown instead.
  using Request = std::function<arrow::Status()>;

  /// Makes the client for `location` with what `options` and their environment say of endpoints and credentials. AWS's
  /// library is started with the first location in S3 and shut down when the program exits.
  /// Throws EnvironmentError where they do not fit together, UsageError for a local location.
  ArrowConnection(const Location& location, StorageOptions options);

  arrow::fs::FileSystem& file_system() const { return *remote_.file_system; }
  const std::string& endpoint() const { return remote_.endpoint; }
  const StorageOptions& options() const { return options_; }

  /// Makes a request until it succeeds. `subject` begins messages: "File 'az://c/x', byte offset 3".
  /// Throws RequestError where the file is missing or has changed; StorageUnavailable where the store refuses or cannot
  /// be asked, fails for longer than StorageOptions::retry allows, or says anything else.
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
