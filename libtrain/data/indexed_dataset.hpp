#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <libtrain/base/text.hpp>
#include <libtrain/data/dataset_identity.hpp>
#include <libtrain/data/read_ahead.hpp>
#include <libtrain/data/sample_origin.hpp>
#include <libtrain/data/sample_random.hpp>

namespace libtrain::data {

/// Numbered samples of any type: what a loader needs besides reading a sample.
class IndexedDataset {
 public:
  virtual ~IndexedDataset() = default;

  virtual std::uint64_t size() const = 0;

  /// The place of the sample in its storage, for messages and the list of bad samples.
  virtual SampleOrigin origin(std::uint64_t index) const { return {.path = text("sample ", index)}; }

  /// Identifies this data set: a run resumes only with a data set of the same lines, and all ranks must have the same
  /// lines. By default they contain the size and the origins; if these do not change with the content (samples in
  /// memory, a rewritten file), override this function and add a digest of the content (ContentHasher). The default
  /// reads no samples and takes about a second per million samples.
  virtual DatasetIdentity identity() const;

  /// The number of consecutive samples in each file, file by file, for Order::blocks. Empty if any order costs the
  /// same.
  virtual std::vector<std::uint64_t> blocks() const { return {}; }

  /// Starts to fetch remote samples ahead of the reader: see ReadAhead. Returns nullptr, without calling `order`, if
  /// there is nothing to fetch. Called while other threads already read. The data set must outlive the result.
  virtual std::unique_ptr<ReadAhead> read_ahead(const ReadingIndices& /*order*/) const { return nullptr; }
};

/// Samples of type S that can be read in any order. To define a data set, derive a class and override size() and get().
template <typename S>
class DatasetOf : public IndexedDataset {
 public:
  /// The sample number `index`, below size(). Augmentation draws from `random`, which belongs to the sample and the
  /// epoch: the result does not depend on threads or ranks. Called from several threads at once. The caller owns the
  /// sample and may change it in place. An EnvironmentError other than StorageUnavailable means that the sample is bad:
  /// see BadSampleOptions.
  virtual S get(std::uint64_t index, SampleRandom& random) const = 0;

  /// get() with the random numbers of epoch 0 and seed 0, to look at a sample.
  S sample(std::uint64_t index) const {
    SampleRandom random(0, 0, index);
    return get(index, random);
  }
};

}  // namespace libtrain::data
