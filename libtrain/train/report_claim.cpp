#include <libtrain/train/report_claim.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include <libtrain/base/text.hpp>
#include <libtrain/train/abstract_address.hpp>

namespace libtrain::detail {

std::string job_name(const Environment& environment) {
  if (const auto pmix = environment.get("PMIX_NAMESPACE")) return "pmix " + *pmix;
  const auto job = environment.get("SLURM_JOB_ID");
  const auto step = environment.get("SLURM_STEP_ID");
  return job && step ? text("slurm ", *job, ' ', *step) : std::string{};
}

ReportClaim::ReportClaim(const std::string& job) {
  if (job.empty()) return;
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0) return;
  const AbstractAddress address{"libtrain report " + job};
  granted_ = bind(socket_, address.get(), address.length()) == 0 || errno != EADDRINUSE;
}

ReportClaim::~ReportClaim() {
  if (socket_ >= 0) close(socket_);
}

}  // namespace libtrain::detail
