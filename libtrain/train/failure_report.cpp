#include <libtrain/train/failure_report.hpp>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <new>
#include <system_error>
#include <thread>

#include <c10/util/Exception.h>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/environment.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/device/gpu_failure.hpp>
#include <libtrain/train/detail/collective_dump.hpp>
#include <libtrain/train/detail/report_claim.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kTimeToReport{3000};
constexpr std::chrono::milliseconds kTimeToFindRanks{1000};
constexpr std::chrono::milliseconds kTimeToStart{500};
constexpr std::chrono::milliseconds kTimeToStartAtMost{5000};  // on a busy machine

// When SIGCONT came last, in seconds of CLOCK_MONOTONIC; 0: never.
std::atomic<std::int64_t> continued_s = 0;
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "the handler may interrupt any code");
constexpr std::int64_t kRecently_s = 5;

std::int64_t monotonic_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

bool was_stopped_recently() {
  const auto continued = continued_s.load();
  return continued != 0 && monotonic_seconds() - continued <= kRecently_s;
}

// How long a rank waits for a lower rank to report the failure and end the job. The peers of a process that was stopped
// have reported the timeout before it continues; and it may continue because the launcher is ending the job, with
// SIGCONT before SIGTERM and SIGKILL.
std::chrono::milliseconds report_delay(const Failure& failure, int rank) {
  if (failure.code == ExitCode::communication && was_stopped_recently()) return kTimeToReport;
  if (rank == 0) return std::chrono::milliseconds(0);
  if (failure.scope == ErrorScope::all_ranks) return std::chrono::seconds(5);
  return std::chrono::milliseconds(400 + 20 * std::min(rank, 50));
}

Failure out_of_memory() {
  return {ExitCode::environment, ErrorScope::this_rank,
          "Out of memory. Use a smaller batch or model, fewer ranks on this host, or a larger machine."};
}

}  // namespace

Failure current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.exit_code(), error.scope(), error.what()};
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const c10::Error& error) {
    if (const auto gpu = gpu_failure_of(error)) return {gpu->code, ErrorScope::this_rank, gpu->message};
    // Its what() includes dozens of lines of C++ frames.
    const std::string message = error.what_without_backtrace();
    if (message.find("DefaultCPUAllocator") == std::string::npos) {
      return {ExitCode::failure, ErrorScope::this_rank, message};
    }
    auto failure = out_of_memory();
    failure.message += " " + message.substr(0, message.find('\n'));  // the number of bytes reveals a wrong shape
    return failure;
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) {
      return {ExitCode::failure, ErrorScope::this_rank, error.what()};
    }
    // Thrown by std::thread.
    return {ExitCode::environment, ErrorScope::this_rank,
            text(error.what(),
                 ": the system refuses another thread or process. Raise the limit (ulimit -u, pids.max "
                 "of the container or job), or use fewer --threads, workers or ranks on this host.")};
  } catch (const std::exception& error) {
    return {ExitCode::failure, ErrorScope::this_rank, error.what()};
  } catch (...) {
    return {ExitCode::failure, ErrorScope::this_rank, "The program threw an object that is not a std::exception."};
  }
}

void record_continues() {
  struct sigaction action{};
  if (::sigaction(SIGCONT, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;  // it is the program's
  action = {};
  action.sa_handler = [](int /*signal*/) { continued_s = monotonic_seconds(); };
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGCONT, &action, nullptr);
}

void report_failure(const Failure& failure, int rank, int world_size, const CollectiveDump* collectives) {
  if (world_size == 1) return log_error(failure.message);
  std::this_thread::sleep_for(report_delay(failure, rank));
  // Held until the process exits: ranks that fail later must find it.
  static const ReportClaim claim{job_name(Environment::of_process())};
  // The process with the claim ends the job, including this process; ending it from here at the same time could
  // truncate that report. If this process still runs after the wait, no launcher has ended it or that process is
  // blocked.
  if (!claim.granted()) std::this_thread::sleep_for(kTimeToReport);
  const bool everywhere = failure.scope == ErrorScope::all_ranks;
  log_error(text(everywhere ? "all ranks, reported by " : "", "rank ", rank, " of ", world_size, " on ", host_name(),
                 " (process ", getpid(), ") failed: ", failure.message, collectives ? "\n" : "",
                 collectives ? collectives->where_to_look() : ""));
  if (collectives == nullptr) return;
  // A separate message: if a rank was killed, the launcher may end this process before all files exist.
  const auto places = collectives->where_ranks_are(kTimeToFindRanks);
  if (!places.empty()) log_warning("Which rank is where:\n" + places);
}

void report_early_failure(const Failure& failure) {
  const auto environment = Environment::of_process();
  const auto job = job_name(environment);
  const ReportClaim claim{job};
  if (!claim.granted()) return;
  log_error(failure.message);
  if (job.empty()) return;
  // Ranks of the job that start later must find the claim.
  const auto ranks = ranks_on_host(environment);
  if (ranks) return claim.wait_for_others(*ranks - 1, kTimeToStartAtMost);
  std::this_thread::sleep_for(kTimeToStart);
}

}  // namespace libtrain::detail
