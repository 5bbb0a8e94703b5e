#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/file_descriptor.hpp>

namespace libtrain::detail {

/// A name that the ranks of one job on one host share, and no other job has: from PMIX_NAMESPACE or Slurm's job and
/// step. Empty if the launcher sets neither.
std::string job_name(const Environment& environment);

/// How many ranks of that job are on this host; std::nullopt if the launcher does not say.
std::optional<int> ranks_on_host(const Environment& environment);

/// The right to report a failure that several ranks of `job` detect at the same time: granted to the first process on
/// its host that requests it, until this object is destroyed or the process ends, even if it is killed. It is the name
/// of an abstract socket, not a file. If another user has taken the name, or `job` is empty, all processes are granted
/// it.
class ReportClaim {
 public:
  explicit ReportClaim(const std::string& job);
  bool granted() const { return granted_; }

  /// Returns when so many other processes have requested the claim that this one has, at the latest after `limit`; at
  /// once if it is everybody's or another's.
  void wait_for_others(int count, std::chrono::milliseconds limit) const;

 private:
  FileDescriptor socket_;
  bool granted_ = true;
};

}  // namespace libtrain::detail
