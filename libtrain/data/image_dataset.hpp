#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <libtrain/data/dataset.hpp>
#include <libtrain/data/image/image_pipeline.hpp>
#include <libtrain/data/sources/image_source.hpp>

namespace libtrain::data {

/// Labelled images from any ImageSource, decoded, augmented and resized as they are read.
class ImageDataset : public InPlaceDataset {
 public:
  /// Throws UsageError without a source, and as ImagePipeline does.
  explicit ImageDataset(std::shared_ptr<const ImageSource> source,
                        const ImagePipelineOptions& images = training_images());
  ~ImageDataset() override;

  std::uint64_t size() const override { return source_->size(); }
  ImageShape image_shape() const override;
  std::int64_t read(std::uint64_t index, SampleRandom& random, void* image) const override;
  std::int64_t class_count() const override { return std::ssize(source_->classes()); }
  SampleOrigin origin(std::uint64_t index) const override { return source_->origin(index); }
  DatasetIdentity identity() const override;
  std::vector<std::uint64_t> blocks() const override { return source_->blocks(); }

  std::unique_ptr<ReadAhead> read_ahead(const ReadingIndices& order) const override {
    return source_->read_ahead(order);
  }

  /// The names of the classes by label; empty if they are not known.
  const std::vector<std::string>& classes() const { return source_->classes(); }

 private:
  struct Workspace;

  std::unique_ptr<Workspace> take_workspace() const;
  void give_back(std::unique_ptr<Workspace> workspace) const;

  const std::shared_ptr<const ImageSource> source_;
  const ImagePipelineOptions images_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Workspace>> workspaces_;  // not in use; at most one per thread that reads
};

}  // namespace libtrain::data
