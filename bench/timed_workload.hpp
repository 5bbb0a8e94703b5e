#pragma once

#include <memory>
#include <string>
#include <vector>

#include <bench/loader_workload.hpp>
#include <libtrain/observe/record.hpp>

namespace libtrain::bench {

/// Timed rounds of one workload.
struct LoaderRounds {
  std::vector<double> seconds = {};
  std::vector<double> core_seconds = {};  ///< CPU time of the process, all threads, user and system (getrusage)
  LoaderPass pass = {};                   ///< of each round
};

/// A workload that is warm, to be timed round by round.
class TimedWorkload {
 public:
  /// `threads` is for the record. Throws what the work throws.
  TimedWorkload(const std::string& name, int threads, std::unique_ptr<LoaderWorkload> workload);

  /// Adds one round.
  void run(LoaderRounds& rounds);

  /// A "loader" record of rounds of this workload, of which there must be one at least.
  Record record_of(const LoaderRounds& rounds) const;

 private:
  std::unique_ptr<LoaderWorkload> workload_;
  Record head_;  // what is the same for all rounds
};

}  // namespace libtrain::bench
