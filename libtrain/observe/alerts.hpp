#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <libtrain/observe/record.hpp>

namespace libtrain {

/// Something about a run that its user should look at while it goes on.
struct Alert {
  std::string kind;       ///< such as "slow_rank"
  std::int64_t step = 0;  ///< at which it was noticed
  std::string message;    ///< what is wrong, and what to do

  /// An `alert` event for metrics.jsonl, with "step", "kind" and "message".
  Record record() const;
};

// The detectors below are functions of the numbers that they are given, in the order of the steps: they read no clock
// and no file. An observation is of the steps since the one before, so that those may be several; the options count
// observations. Each speaks once of a matter. None is safe to use by several threads at the same time.

/// Watches the loss. Kind "loss_not_finite": it is NaN or infinite, at once. Kind "loss_jump": it has left its course
/// for `steps_in_a_row` observations. The course is the exponential mean over about `window` of them; left means above
/// it by `deviations` standard deviations and by `share` of its absolute value.
///
/// Defaults: losses of single batches scatter like samples of a heavy-tailed distribution, so that one or two far out
/// are usual and five in a row are not; without `share`, a loss that has settled would alert on a scatter that no user
/// cares about. The first `window` steps only learn the course: losses fall fast there.
class LossWatch {
 public:
  struct Options {
    int window = 100;
    double deviations = 6.0;
    double share = 0.5;
    int steps_in_a_row = 5;
  };

  LossWatch();
  explicit LossWatch(Options options);

  std::optional<Alert> observe(std::int64_t step, double loss);

 private:
  Options options_;
  double mean_ = 0.0;
  double variance_ = 0.0;
  std::int64_t learned_ = 0;
  int above_ = 0;                 // observations in a row
  std::int64_t first_above_ = 0;  // the first step of these
  std::int64_t last_step_ = -1;   // of the observation before
  bool has_told_jump_ = false;
  bool has_told_not_finite_ = false;
};

/// Watches for a rank that all others wait for, kind "slow_rank": its time is longer than the median of the other
/// ranks' by `share`, in `steps` steps more than not (a step in which it is not counts twice against). At least two
/// ranks are needed. Each rank is told of once.
///
/// Defaults: ranks on equal hardware differ by a few percent, and the wait costs all of them what the slowest takes
/// longer, so that a fifth is worth a look; 50 steps leave out a checkpoint, an evaluation or a neighbour's burst.
class SlowRankWatch {
 public:
  struct Options {
    double share = 0.2;
    double seconds = 1e-3;  ///< of a step: below that, ranks differ by how the system schedules their threads
    int steps = 50;
  };

  SlowRankWatch();
  explicit SlowRankWatch(Options options);

  /// The seconds that each rank spent on the step by itself: without the wait for the others in collectives, which
  /// makes all ranks' steps equally long.
  std::optional<Alert> observe(std::int64_t step, std::span<const double> seconds);

 private:
  Options options_;
  std::vector<int> slow_;  // steps, by rank
  std::set<std::size_t> told_;
};

/// Watches for a loop that waits for its data, kind "data_starvation": over `steps` steps, more than `share` of the
/// time was waiting for the loader. The first `steps` steps are left out, in which caches are filled.
///
/// Default: below a tenth more workers hardly pay; 100 steps even out slow files.
class StarvationWatch {
 public:
  struct Options {
    double share = 0.1;
    int steps = 100;
  };

  StarvationWatch();
  explicit StarvationWatch(Options options);

  /// The seconds of the step, and those of them spent waiting for its batch.
  std::optional<Alert> observe(std::int64_t step, double step_s, double wait_s);

 private:
  Options options_;
  double step_s_ = 0.0;
  double wait_s_ = 0.0;
  int steps_ = 0;                  // in this window
  std::int64_t window_begin_ = 0;  // the last step before this window
  bool is_warm_ = false;
  bool has_told_ = false;
};

/// Watches for memory that grows, kind "memory_growth": the most of each of `windows` windows of `steps` steps in a row
/// is above that of the one before, by `bytes` in all. The message says when the limit will be reached.
///
/// Defaults: allocators reach their level within some hundred steps, and levels of growing steps are seldom strictly
/// increasing eight times; 256 MiB are more than fragmentation brings after that.
class MemoryWatch {
 public:
  struct Options {
    int steps = 100;
    int windows = 8;
    std::int64_t bytes = 256 << 20;
  };

  MemoryWatch();
  explicit MemoryWatch(Options options);

  /// Memory in use, of a process or of a device, and its limit (0 if there is none), in bytes.
  std::optional<Alert> observe(std::int64_t step, std::int64_t used_bytes, std::int64_t limit_bytes);

 private:
  Options options_;
  std::int64_t most_ = 0;  // of this window
  int steps_ = 0;          // in this window
  struct Window {
    std::int64_t most = 0;
    std::int64_t last_step = 0;
  };
  std::deque<Window> windows_;
  bool has_told_ = false;
};

/// Watches counters of the machine, as detail::cpu_throttling() and detail::clock_throttling() read them, every some
/// hundred steps. Kind "cpu_throttling": in more than `share` of the scheduler's periods, of which there must be 100,
/// the container's quota was used up and its threads were stopped. Kind "clock_throttling": processors reduced their
/// clocks more than `reductions` times.
///
/// Defaults: stopped threads of one rank delay all ranks, so that a twentieth is felt; single reductions of the clock
/// occur on healthy machines.
class ThrottlingWatch {
 public:
  struct Options {
    double share = 0.05;
    std::int64_t reductions = 100;
  };

  ThrottlingWatch();
  explicit ThrottlingWatch(Options options);

  std::optional<Alert> observe_quota(std::int64_t step, std::int64_t periods, std::int64_t throttled);
  std::optional<Alert> observe_clocks(std::int64_t step, std::int64_t reductions);

 private:
  Options options_;
  std::int64_t periods_ = -1;  // at the last look; -1 before the first
  std::int64_t throttled_ = 0;
  std::int64_t first_reductions_ = -1;
  bool has_told_quota_ = false;
  bool has_told_clocks_ = false;
};

}  // namespace libtrain
