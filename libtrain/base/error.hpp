#pragma once

#include <stdexcept>
#include <string>

namespace libtrain {

/// Process exit codes, the same in every libtrain program.
enum class ExitCode : int {
  success = 0,
  failure = 1,        ///< an exception that is not a libtrain::Error
  usage = 2,          ///< fix the call
  environment = 3,    ///< fix the machine, the launch or the data
  communication = 4,  ///< this run is over: a peer was lost or stalled, or made different calls
  stopped = 5,        ///< stopped on request, after a checkpoint
};

/// Whether an error was thrown by this rank alone or, after an agreement between ranks, by all of them.
enum class ErrorScope { this_rank, all_ranks };

/// Base of everything libtrain throws. `what()` is one or more sentences: what was wrong, the value, what to do.
/// Secrets (URL queries, tokens) are masked when the message is stored.
class Error : public std::runtime_error {
 public:
  ExitCode exit_code() const noexcept { return exit_code_; }

  /// `all_ranks` when every rank of the job throws this same error, so that one report is enough.
  ErrorScope scope() const noexcept { return scope_; }

 protected:
  Error(ExitCode exit_code, const std::string& message, ErrorScope scope);

 private:
  ExitCode exit_code_;
  ErrorScope scope_;
};

/// The caller broke a contract: wrong argument, wrong order of calls, models that differ between ranks.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message, ErrorScope scope = ErrorScope::this_rank)
      : Error(ExitCode::usage, message, scope) {}
};

/// The machine, the launch environment or the data is not usable: missing file, truncated file, half-set variables.
class EnvironmentError : public Error {
 public:
  explicit EnvironmentError(const std::string& message, ErrorScope scope = ErrorScope::this_rank)
      : Error(ExitCode::environment, message, scope) {}
};

/// A peer was lost or stalled, or a communication library failed: this run cannot go on.
class CommunicationError : public Error {
 public:
  explicit CommunicationError(const std::string& message, ErrorScope scope = ErrorScope::this_rank)
      : Error(ExitCode::communication, message, scope) {}
};

}  // namespace libtrain
