#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/launch/launch.hpp>
#include <libtrain/train/detail/collective_dump.hpp>
#include <libtrain/train/failure_report.hpp>

namespace libtrain::detail {

/// The end of a run that fails, on the thread that runs the body or on a thread that watches a GPU: one report, with
/// the last collectives of the ranks. Of several threads the first reports, and the others wait for the end of the
/// process.
class FailedRun {
 public:
  /// From now on a failure writes the collectives of `communicator` (see CollectiveDump) to `directory`. All ranks must
  /// call it, with the same `run`, after their first collective.
  void follow(std::shared_ptr<Communicator> communicator, const std::filesystem::path& directory,
              const std::string& run);

  /// Writes the collectives and reports; the caller ends the process. Returns at once if another thread has failed
  /// before. Any thread may call it.
  void report(const Failure& failure, const Launch& launch);

  /// For ConnectOptions::on_failure: calls report(). It does not keep `failed`, which refers to the communicator, which
  /// keeps this function: neither would be destroyed.
  static std::function<void(const std::string& reason)> reporter(const std::shared_ptr<FailedRun>& failed,
                                                                 const Launch& launch);

  /// The same, and ends the job as end_failed_job() does. Any thread may call it.
  int end(const Failure& failure, const std::optional<Launch>& launch, Communicator* communicator);

 private:
  bool is_first() { return !has_failed_.exchange(true); }
  const CollectiveDump* write_collectives(const Failure& failure);

  std::mutex mutex_;
  std::optional<CollectiveDump> collectives_;
  std::atomic<bool> has_failed_ = false;
};

}  // namespace libtrain::detail
