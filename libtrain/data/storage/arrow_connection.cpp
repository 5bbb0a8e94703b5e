#include <libtrain/data/storage/arrow_connection.hpp>

#include <cerrno>
#include <chrono>
#include <exception>
#include <stop_token>
#include <utility>

#include <arrow/status.h>
#include <arrow/util/io_util.h>

#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/retry.hpp>
#include <libtrain/data/storage/stop_scope.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::chrono::nanoseconds kWarningInterval = std::chrono::seconds{30};

}  // namespace

ArrowConnection::ArrowConnection(RemoteFileSystem remote, StorageOptions options)
    : remote_(std::move(remote)), options_(std::move(options)) {}

std::optional<StorageFailure> ArrowConnection::failure_of(const Request& request) const {
  try {
    const arrow::Status status = request();
    if (status.ok()) return std::nullopt;
    auto failure = classify_failure(status.message(), remote_.secrets);
    // Arrow marks what was not found, and drops the store's words; on GCS a token that was not found bears the mark
    // too.
    if (failure.kind != FailureKind::unreachable && arrow::internal::ErrnoFromStatus(status) == ENOENT) {
      failure.kind = FailureKind::missing;
    }
    return failure;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    // Arrow expects failed requests only; that nobody is there to sign them comes through as an exception.
    return classify_failure(error.what(), remote_.secrets);
  }
}

std::string ArrowConnection::explanation(const StorageFailure& failure, RequestPhase phase) const {
  const bool is_open = phase == RequestPhase::reading;
  switch (failure.kind) {
    case FailureKind::missing:
      return is_open ? "it was deleted since it was opened" : "it does not exist";
    case FailureKind::refused:
      return text("access was refused: ", failure.reason, ". The request was signed with ", remote_.signed_with);
    case FailureKind::changed:
      return is_open ? text("it was changed since it was opened: ", failure.reason) : failure.reason;
    case FailureKind::unreachable:
      return text("the store could not be asked: ", failure.reason, ". The request was to be signed with ",
                  remote_.signed_with);
    case FailureKind::transient:
      return text("the store failed or did not answer: ", failure.reason);
    case FailureKind::unknown:
      break;
  }
  return text("the request failed: ", failure.reason,
              ". Nothing says that the file is to blame: check that what signs "
              "the requests (",
              remote_.signed_with,
              ") has not expired, this machine's clock, and the certificates "
              "that it trusts");
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
  // Whoever puts off the next warning gives this one.
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
  SteadyRetryTimer timer;
  std::stop_source stop;
  const auto request_stop = [&stop] { stop.request_stop(); };
  const std::stop_callback by_user(options_.stop, request_stop);
  const std::stop_callback by_thread(StopScope::of_this_thread(), request_stop);
  try {
    retry(options_.retry, timer, stop.get_token(), once, is_transient);
  } catch (const RequestError& failure) {
    if (is_about_the_file(failure.kind())) throw;
    throw StorageUnavailable(failure.what());
  } catch (const EnvironmentError& failure) {  // it was tried long enough
    throw StorageUnavailable(failure.what());
  }
}

}  // namespace libtrain::data::detail
