#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace libtrain::data {

/// What a worker of a loader spends its time on.
enum class LoaderStage {
  read,       ///< getting bytes from disk or network; also all that a data set does outside of the other stages
  decode,     ///< making pixels of them
  transform,  ///< augmenting, resizing, normalising
  collate,    ///< putting samples together into a batch
};

inline constexpr std::size_t kLoaderStages = 4;

/// What a thread has read.
struct ReadCounts {
  std::uint64_t bytes = 0;
  std::uint64_t cache_hits = 0;
  std::uint64_t cache_misses = 0;
};

/// Seconds per stage, and what was read, of one thread. A thread that is not a loader's worker has none, and then a
/// StageScope costs nothing but looking.
class StageClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Makes this the calling thread's clock while the object lives; the stage is `read`, and time runs between resume()
  /// and pause() only.
  StageClock();
  ~StageClock();
  StageClock(const StageClock&) = delete;  // its thread refers to it
  StageClock& operator=(const StageClock&) = delete;

  void resume();
  void pause();

  /// Stops charging the present stage, and returns it.
  LoaderStage enter(LoaderStage stage);

  const std::array<double, kLoaderStages>& seconds() const { return seconds_; }
  const ReadCounts& counts() const { return counts_; }
  ReadCounts& counts() { return counts_; }

  /// The calling thread's clock; null where it has none.
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

/// Charges the time of its life to a stage of the calling thread's clock. What is opened within counts for the inner
/// one.
class StageScope {
 public:
  explicit StageScope(LoaderStage stage) : clock_(StageClock::of_this_thread()) {
    if (clock_ != nullptr) outer_ = clock_->enter(stage);
  }
  ~StageScope() {
    if (clock_ != nullptr) clock_->enter(outer_);
  }
  StageScope(const StageScope&) = delete;  // would charge twice
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
