#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace libtrain::data {

/// The progress of a loader: the ranks together have consumed the samples before `position` in the epoch's order. It
/// does not depend on the world size or the batch size; both may change when the run is resumed.
struct LoaderState {
  std::uint64_t seed = 0;  ///< seed of the order
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;      ///< 0 at the start of an epoch, at most dataset_size
  std::uint64_t dataset_size = 0;  ///< in samples: the order depends on it
  std::uint64_t order = 0;         ///< Sampler::fingerprint(); 0 if it is not known
  std::uint64_t content = 0;       ///< a digest of Dataset::identity(); 0 if it is not known
  std::string data = {};           ///< some lines of Dataset::identity(), for messages
  /// For each rank, the indices of the bad samples that count for its BadSampleOptions, in ascending order.
  /// LoaderEpoch::state() contains those of its own rank only, gather_loader_state() those of all ranks.
  std::vector<std::vector<std::uint64_t>> bad_samples = {};

  bool operator==(const LoaderState&) const = default;

  /// One line of JSON that contains the version of its format.
  std::string to_text() const;

  /// Parses the result of to_text(). Throws EnvironmentError for any other text, and for another version of the format.
  static LoaderState from_text(std::string_view text);
};

}  // namespace libtrain::data
