#include <libtrain/train/detail/failed_run.hpp>

#include <chrono>
#include <thread>
#include <utility>

#include <libtrain/train/failed_job.hpp>

namespace libtrain::detail {

namespace {

// Longer than the report of the thread that has failed first, which then ends the process.
constexpr std::chrono::seconds kTimeToEndProcess{15};

}  // namespace

void FailedRun::follow(std::shared_ptr<Communicator> communicator, const std::filesystem::path& directory,
                       const std::string& run) {
  const std::lock_guard lock(mutex_);
  if (communicator->world_size() > 1) collectives_.emplace(std::move(communicator), directory, run);
}

void FailedRun::report(const Failure& failure, const Launch& launch) {
  if (!is_first()) return;
  report_failure(failure, launch.rank.value, launch.world_size.value, write_collectives(failure));
}

std::function<void(const std::string& reason)> FailedRun::reporter(const std::shared_ptr<FailedRun>& failed,
                                                                   const Launch& launch) {
  return [weak = std::weak_ptr{failed}, launch](const std::string& reason) {
    if (const auto run = weak.lock()) run->report({ExitCode::communication, ErrorScope::this_rank, reason}, launch);
  };
}

int FailedRun::end(const Failure& failure, const std::optional<Launch>& launch, Communicator* communicator) {
  if (!is_first()) std::this_thread::sleep_for(kTimeToEndProcess);
  return end_failed_job(failure, launch, communicator, write_collectives(failure));
}

// Before the report, on all ranks: the rank that reports ends the job.
const CollectiveDump* FailedRun::write_collectives(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  return collectives_ && collectives_->write_after(failure) ? &*collectives_ : nullptr;
}

}  // namespace libtrain::detail
