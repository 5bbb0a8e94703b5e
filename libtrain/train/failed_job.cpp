#include <libtrain/train/failed_job.hpp>

#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace libtrain {

int end_failed_job(const std::optional<Launch>& launch, Communicator* communicator) {
  return detail::end_failed_job(detail::current_failure(), launch, communicator, nullptr);
}

int detail::end_failed_job(const Failure& failure, const std::optional<Launch>& launch, Communicator* communicator,
                           const CollectiveDump* collectives) {
  if (launch) {
    report_failure(failure, launch->rank.value, launch->world_size.value, collectives);
  } else {
    report_early_failure(failure);
  }
  // The program's own output may explain the failure.
  std::fflush(nullptr);
  std::cout.flush();
  // Peers may be waiting for this rank: end the job now, not at their deadlines.
  if (communicator != nullptr) communicator->abort(failure.message, failure.code);
  // Static destructors would wait for threads that may be blocked in another library.
  if (launch && launch->world_size.value > 1) std::_Exit(static_cast<int>(failure.code));
  return static_cast<int>(failure.code);
}

}  // namespace libtrain
