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

/// How many samples that cannot be read are replaced by others before one is an error. Without a limit the first one
/// is.
struct BadSampleOptions {
  std::optional<std::uint64_t> maximum_count = {};  ///< different bad samples per rank
  std::optional<double> maximum_rate = {};          ///< the same as a fraction of the data set's samples
};

/// A sample that cannot be read and is replaced by another one.
struct BadSample {
  std::uint64_t epoch = 0;
  std::uint64_t index = 0;
  SampleOrigin origin = {};
  std::string reason = {};
  std::uint64_t replacement = 0;  ///< the index of the other sample
};

/// Counts and lists bad samples, and throws when there are too many. Any thread may call it.
class BadSamples {
 public:
  /// Appends a line to <folder>/bad_samples.jsonl for each bad sample when it is first found: one JSON object with
  /// rank, epoch, index, path, offset, reason, replacement and, unless it is empty, run_id. All ranks append to the
  /// same file. Without a folder, or if the file cannot be written (which is a warning), bad samples are logged
  /// instead. Throws UsageError for a rate outside [0, 1].
  BadSamples(const BadSampleOptions& options, std::uint64_t dataset_size, int rank, const std::filesystem::path& folder,
             std::string run_id = {});

  bool are_allowed() const { return allowed_ > 0; }

  /// Throws EnvironmentError, with the reason of this sample, if there are now more bad samples than allowed.
  void add(const BadSample& sample);

  /// Counts the bad samples of the run that is resumed. Throws EnvironmentError if there are now more than allowed,
  /// UsageError for an index past the end.
  void resume(const std::vector<std::uint64_t>& indices);

  /// The number of different bad samples so far.
  std::uint64_t size() const;

  /// Their indices in ascending order.
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
  std::unordered_set<std::uint64_t> listed_;  // those of add(), not of resume()
  bool has_warned_ = false;
};

/// The sample that replaces sample `bad` in `epoch` at attempt number `attempt`, from 0 on: any other of the
/// `dataset_size` (at least 2), and a pure function, so that all ranks, and a resumed run, choose the same one.
std::uint64_t replacement_of(std::uint64_t bad, std::uint64_t seed, std::uint64_t epoch, std::uint64_t attempt,
                             std::uint64_t dataset_size);

}  // namespace libtrain::data
