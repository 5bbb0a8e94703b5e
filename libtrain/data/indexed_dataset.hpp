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

/// Numbered samples, whatever they are: what a loader has to know of them besides reading one.
class IndexedDataset {
 public:
  virtual ~IndexedDataset() = default;

  virtual std::uint64_t size() const = 0;

  /// Where the sample is stored, for messages and the list of bad samples.
  virtual SampleOrigin origin(std::uint64_t index) const { return {.path = text("sample ", index)}; }

  /// Tells this data set from others: a run resumes only with a data set of the same lines, and all ranks must have
  /// the same. Unless overridden, the size and what origin() says: where that does not tell other content (samples in
  /// memory, a file that was written anew), override it, with a digest of the content (ContentHasher). Reads no samples
  /// of its own, and takes about a second for a million.
  virtual DatasetIdentity identity() const;

  /// How many samples in a row lie in the same file, file by file: what Order::blocks shuffles. Empty where any order
  /// costs the same.
  virtual std::vector<std::uint64_t> blocks() const { return {}; }

  /// Begins to fetch, ahead of the reader, what lies far away: see ReadAhead. Nothing where that is of no use, and then
  /// `order` is not called. Called while other threads read already. The data set must outlive the result.
  virtual std::unique_ptr<ReadAhead> read_ahead(const ReadingIndices& /*order*/) const { return nullptr; }
};

/// Samples of type S that can be read in any order. A data set of your own is a class with size() and get().
template <typename S>
class DatasetOf : public IndexedDataset {
 public:
  /// The sample number `index`, below size(). Augmentation draws from `random`, which belongs to the sample and the
  /// epoch: the result does not depend on threads or ranks. Called from several threads at once. The sample belongs to
  /// the caller, who may change it in place. An EnvironmentError other than StorageUnavailable says that the sample is
  /// bad: see BadSampleOptions.
  virtual S get(std::uint64_t index, SampleRandom& random) const = 0;

  /// The same with random numbers of epoch 0 and seed 0, to look at one.
  S sample(std::uint64_t index) const {
    SampleRandom random(0, 0, index);
    return get(index, random);
  }
};

}  // namespace libtrain::data
