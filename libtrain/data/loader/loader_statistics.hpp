#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <libtrain/data/stage_clock.hpp>

namespace libtrain::data {

/// What limits the speed of a training loop.
enum class LoaderBottleneck {
  unknown,    ///< no batch has been taken
  model,      ///< batches are ready before the loop requests them
  reading,    ///< the loop waits for batches, and workers mostly wait for bytes
  decoding,   ///< the loop waits for batches, and workers mostly decode
  transform,  ///< the loop waits for batches, and workers mostly augment, resize and collate
};

/// How a loader spent its time: sums over its epochs on one rank, up to now.
struct LoaderStatistics {
  int workers = 0;
  std::uint64_t batches = 0;      ///< taken by the loop
  std::uint64_t samples = 0;      ///< in these batches
  std::uint64_t bad_samples = 0;  ///< replaced by others
  ReadCounts read = {};
  double seconds = 0;                                    ///< from the start of each epoch to its end
  double seconds_waiting = 0;                            ///< the loop waited for batches
  std::array<double, kLoaderStages> stage_seconds = {};  ///< busy time by LoaderStage, summed over workers
  double worker_seconds_waiting = 0;                     ///< time waiting for a free slot, summed over workers
  double ready_batches = 0;                              ///< average number that were ready when the loop took one
  std::uint64_t batch_slots = 0;                         ///< the maximum of ready_batches

  double busy_seconds() const;

  LoaderBottleneck bottleneck() const;

  LoaderStatistics& operator+=(const LoaderStatistics& other);
};

/// A sentence for users, such as "The loop waited 12.0 s of 60.0 s (20%) for data; decoding is the bottleneck (58% of
/// the time of 2 threads): more workers, smaller images, or shards with restart markers would help."
std::string describe(const LoaderStatistics& statistics);

}  // namespace libtrain::data
