#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <libtrain/data/sample_origin.hpp>

namespace libtrain::data {

/// What becomes of samples that cannot be read: unless a limit is given, the first one is an error. Otherwise others
/// take their places, until there are more than the limits allow.
struct BadSampleOptions {
  std::optional<std::uint64_t> maximum_count = {};  ///< different bad samples that a rank may meet
  std::optional<double> maximum_rate = {};          ///< the same as a share of the data set's samples
};

/// A sample that another one replaces.
struct BadSample {
  std::uint64_t epoch = 0;
  std::uint64_t index = 0;
  SampleOrigin origin = {};
  std::string reason = {};
  std::uint64_t replacement = 0;  ///< the index of the other one
};

/// Counts bad samples, lists them, and says when they are too many. Any thread may call it.
class BadSamples {
 public:
  /// Each bad sample becomes a line of <folder>/bad_samples.jsonl when it is first met: one JSON object with rank,
  /// epoch, index, path, offset, reason, replacement and, unless that is empty, run_id. All ranks add to the same file.
  /// Without a folder, and where the file cannot be written, which is a warning, the log says it. Throws UsageError for
  /// a rate outside [0, 1].
  BadSamples(const BadSampleOptions& options, std::uint64_t dataset_size, int rank, const std::filesystem::path& folder,
             std::string run_id = {});

  /// Whether any are allowed at all.
  bool are_allowed() const { return allowed_ > 0; }

  /// Throws EnvironmentError, with the reason of this one, where there are more than allowed now.
  void add(const BadSample& sample);

  /// Counts what the run that goes on here has met already. Throws EnvironmentError where there are more than allowed
  /// now, UsageError for an index past the end.
  void resume(const std::vector<std::uint64_t>& indices);

  /// Different ones so far.
  std::uint64_t size() const;

  /// Which, in ascending order.
  std::vector<std::uint64_t> indices() const;

 private:
  void list(const BadSample& sample);

  const std::uint64_t allowed_;
  const std::uint64_t dataset_size_;
  const int rank_;
  const std::filesystem::path file_;
  const std::string run_id_;
  mutable std::mutex mutex_;
  std::unordered_set<std::uint64_t> indices_;
  std::unordered_set<std::uint64_t> listed_;  // of these the ones that this object has met itself
  bool has_warned_ = false;
};

/// The sample that takes the place of sample `index` in `epoch` at the `attempt`-th try, from 0 on: a pure function, so
/// that all ranks, and a resumed run, choose the same.
std::uint64_t replacement_of(std::uint64_t index, std::uint64_t seed, std::uint64_t epoch, std::uint64_t attempt,
                             std::uint64_t dataset_size);

}  // namespace libtrain::data
