#include <libtrain/train/report_claim.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include <libtrain/base/text.hpp>

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
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // A zero byte at the start makes the name abstract.
  const auto label = ("libtrain report " + job).substr(0, sizeof(address.sun_path) - 1);
  std::copy(label.begin(), label.end(), address.sun_path + 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + label.size());
  granted_ = bind(socket_, reinterpret_cast<const sockaddr*>(&address), length) == 0 || errno != EADDRINUSE;
}

ReportClaim::~ReportClaim() {
  if (socket_ >= 0) close(socket_);
}

}  // namespace libtrain::detail
