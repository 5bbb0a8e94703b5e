#include <libtrain/train/detail/report_claim.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/launch/detail/launcher_variables.hpp>
#include <libtrain/train/detail/abstract_address.hpp>

namespace libtrain::detail {

std::string job_name(const Environment& environment) {
  if (const auto pmix = environment.get("PMIX_NAMESPACE")) return "pmix " + *pmix;
  const auto job = environment.get("SLURM_JOB_ID");
  const auto step = environment.get("SLURM_STEP_ID");
  return job && step ? text("slurm ", *job, ' ', *step) : std::string{};
}

std::optional<int> ranks_on_host(const Environment& environment) {
  const auto ranks = environment.get("OMPI_COMM_WORLD_LOCAL_SIZE");
  return ranks ? parse_decimal(*ranks, 1, kMaxWorldSize) : std::nullopt;
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
  socket_ = {};  // without the name, no process connects to it
}

// Each of them connects, in belongs_to_this_user().
void ReportClaim::wait_for_others(int count, std::chrono::milliseconds limit) const {
  if (!socket_.is_open()) return;
  const auto deadline = Deadline::after(limit);
  for (pollfd listening{.fd = socket_.get(), .events = POLLIN, .revents = 0}; count > 0 && !deadline.expired();) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
    if (poll(&listening, 1, static_cast<int>(left.count())) != 1) continue;
    const FileDescriptor other{accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    if (!other.is_open()) return;
    --count;
  }
}

}  // namespace libtrain::detail
