#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace libtrain::data {

/// Where a loader stands: the samples of the epoch's order before `position` have been consumed by all ranks together.
/// Independent of the world size and of the batch size, either of which may change before a run goes on from here.
struct LoaderState {
  std::uint64_t seed = 0;  ///< of the order
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;      ///< 0 at the start of an epoch, at most dataset_size
  std::uint64_t dataset_size = 0;  ///< in samples: a data set of another size has another order
  std::uint64_t order = 0;         ///< Sampler::fingerprint(); 0 where it is not known
  std::uint64_t content = 0;       ///< a digest of Dataset::identity(); 0 where it is not known
  std::string data = {};           ///< some of its lines, for messages
  /// The numbers of the bad samples that each rank has met, in ascending order: all that count for its
  /// BadSampleOptions. LoaderEpoch::state() has those of its own rank alone; gather_loader_state() those of all.
  std::vector<std::vector<std::uint64_t>> bad_samples = {};

  bool operator==(const LoaderState&) const = default;

  /// One line of JSON, which says its format's version.
  std::string to_text() const;

  /// What to_text() made. Throws EnvironmentError for anything else, and for a version that this libtrain does not
  /// know.
  static LoaderState from_text(std::string_view text);
};

}  // namespace libtrain::data
