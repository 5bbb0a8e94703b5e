#include <libtrain/train/detail/report_claim.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include <libtrain/base/text.hpp>
#include <libtrain/train/detail/abstract_address.hpp>

namespace libtrain::detail {

std::string job_name(const Environment& environment) {
  if (const auto pmix = environment.get("PMIX_NAMESPACE")) return "pmix " + *pmix;
  const auto job = environment.get("SLURM_JOB_ID");
  const auto step = environment.get("SLURM_STEP_ID");
  return job && step ? text("slurm ", *job, ' ', *step) : std::string{};
}

namespace {

// Whether the process that has the name runs as this user: another user must not be able to suppress the report.
bool belongs_to_this_user(const AbstractAddress& address) {
  const FileDescriptor socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  ucred holder{};
  socklen_t length = sizeof(holder);
  // A listening socket reveals its owner even if it never accepts.
  return socket.is_open() && connect(socket.get(), address.get(), address.length()) == 0 &&
         getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &holder, &length) == 0 && holder.uid == geteuid();
}

}  // namespace

ReportClaim::ReportClaim(const std::string& job) {
  if (job.empty()) return;
  constexpr int kBacklog = 4096;  // all ranks of the host may connect, and no connection is accepted
  socket_ = FileDescriptor{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (!socket_.is_open()) return;
  const AbstractAddress address{text("libtrain ", geteuid(), " report ", job)};
  const bool has_name = bind(socket_.get(), address.get(), address.length()) == 0;
  if (has_name) {
    listen(socket_.get(), kBacklog);
    return;
  }
  granted_ = errno != EADDRINUSE || !belongs_to_this_user(address);
}

}  // namespace libtrain::detail
