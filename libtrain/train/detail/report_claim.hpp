#pragma once

#include <string>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/file_descriptor.hpp>

namespace libtrain::detail {

/// What the ranks of one job on one host have in common, and no other job: from PMIX_NAMESPACE or Slurm's job and step.
/// Empty where the launcher gives nothing.
std::string job_name(const Environment& environment);

/// The right to report a failure which several ranks of `job` meet at the same moment: given to the first process on
/// its host that asks, until this object or the process ends, however it ends. It is a name among Linux's abstract
/// sockets, not a file; where another user has taken that, everybody gets the right, and for an empty name, too.
class ReportClaim {
 public:
  explicit ReportClaim(const std::string& job);
  bool granted() const { return granted_; }

 private:
  FileDescriptor socket_;
  bool granted_ = true;
};

}  // namespace libtrain::detail
