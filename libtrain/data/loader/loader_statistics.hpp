#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <libtrain/data/stage_clock.hpp>

namespace libtrain::data {

/// What holds a training loop up.
enum class LoaderBottleneck {
  unknown,    ///< no batch has been taken
  model,      ///< batches are there before they are asked for
  reading,    ///< the loop waits for batches, and the workers mostly for bytes
  decoding,   ///< the same, and they mostly make pixels
  transform,  ///< the same, and they mostly augment, resize and collate
};

/// Where the time of a loader went. Sums over the epochs of a loader on one rank, up to now.
struct LoaderStatistics {
  int workers = 0;
  std::uint64_t batches = 0;      ///< taken by the loop
  std::uint64_t samples = 0;      ///< in these batches
  std::uint64_t bad_samples = 0;  ///< replaced by others
  ReadCounts read = {};
  double seconds = 0;                                    ///< from each epoch's start to its end
  double seconds_waiting = 0;                            ///< that the loop waited for batches
  std::array<double, kLoaderStages> stage_seconds = {};  ///< that workers were busy, by LoaderStage, summed
  double worker_seconds_waiting = 0;                     ///< that workers waited for room, summed
  double ready_batches = 0;                              ///< that lay ready when one was asked for, on average
  std::uint64_t batch_slots = 0;                         ///< how many can

  double busy_seconds() const;

  LoaderBottleneck bottleneck() const;

  LoaderStatistics& operator+=(const LoaderStatistics& other);
};

/// One sentence for people, such as "The loop waited 12.0 s of 60.0 s (20%) for data; decoding is the bottleneck (58%
/// of the time of 2 threads): more workers, smaller images, or shards with restart markers would help."
std::string describe(const LoaderStatistics& statistics);

}  // namespace libtrain::data
