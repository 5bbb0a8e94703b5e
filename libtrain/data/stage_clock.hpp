#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace libtrain::data {

/// What a loader's worker spends its time on.
enum class LoaderStage {
  read,       ///< reading from disk or network; also everything that a data set does outside of the other stages
  decode,     ///< decoding to pixels
  transform,  ///< augmenting, resizing, normalising
  collate,    ///< combining samples into a batch
};

inline constexpr std::size_t kLoaderStages = 4;

/// Counts of one thread.
struct ReadCounts {
  std::uint64_t bytes = 0;
  std::uint64_t cache_hits = 0;
  std::uint64_t cache_misses = 0;
};

/// Measures the seconds per stage and counts what was read by one thread. Threads other than a loader's workers have
/// none; a StageScope then only looks for it.
class StageClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Makes this the calling thread's clock while the object exists. The stage is `read`, and time is measured between
  /// resume() and pause() only.
  StageClock();
  ~StageClock();
  StageClock(const StageClock&) = delete;  // its thread refers to it
  StageClock& operator=(const StageClock&) = delete;

  void resume();
  void pause();

  /// Measures for `stage` from now on, and returns the previous stage.
  LoaderStage enter(LoaderStage stage);

  const std::array<double, kLoaderStages>& seconds() const { return seconds_; }
  const ReadCounts& counts() const { return counts_; }
  ReadCounts& counts() { return counts_; }

  /// The calling thread's clock, or null.
  static StageClock* of_this_thread();

 private:
  void charge();

  StageClock* const previous_;
  LoaderStage stage_ = LoaderStage::read;
  bool running_ = false;
  Clock::time_point since_ = {};
  std::array<double, kLoaderStages> seconds_ = {};
  ReadCounts counts_ = {};
};

/// Measures the time of its lifetime as a stage of the calling thread's clock. The time of an inner scope counts for
/// that scope's stage.
class StageScope {
 public:
  explicit StageScope(LoaderStage stage) : clock_(StageClock::of_this_thread()) {
    if (clock_ != nullptr) outer_ = clock_->enter(stage);
  }
  ~StageScope() {
    if (clock_ != nullptr) clock_->enter(outer_);
  }
  StageScope(const StageScope&) = delete;  // would leave the stage twice
  StageScope& operator=(const StageScope&) = delete;

 private:
  StageClock* const clock_;
  LoaderStage outer_ = LoaderStage::read;
};

/// Add to the counts of the calling thread's clock, if it has one.
inline void count_bytes_read(std::uint64_t bytes) {
  if (auto* clock = StageClock::of_this_thread()) clock->counts().bytes += bytes;
}
inline void count_cache_hit() {
  if (auto* clock = StageClock::of_this_thread()) ++clock->counts().cache_hits;
}
inline void count_cache_miss() {
  if (auto* clock = StageClock::of_this_thread()) ++clock->counts().cache_misses;
}

}  // namespace libtrain::data
