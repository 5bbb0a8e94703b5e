#pragma once

#include <cstdint>
#include <memory>

#include <libtrain/data/dataset.hpp>
#include <libtrain/data/image/image_pipeline.hpp>
#include <libtrain/data/sample_random.hpp>
#include <libtrain/data/sources/image_source.hpp>

namespace libtrain::bench {

/// What an ImageDataset with a random resized crop would be if it decoded the whole picture first: the same parts, the
/// same draws in the same order, and so the same pictures, bit by bit. Knows crop, flip and normalisation, no other
/// augmentation, and float16 in channels-last order alone.
class DecodeThenCrop final : public data::InPlaceDataset {
 public:
  DecodeThenCrop(std::shared_ptr<const data::ImageSource> source, const data::ImagePipelineOptions& options);

  std::uint64_t size() const override { return source_->size(); }
  data::ImageShape image_shape() const override;
  std::int64_t read(std::uint64_t index, data::SampleRandom& random, void* image) const override;

 private:
  std::shared_ptr<const data::ImageSource> source_;
  data::ImagePipelineOptions options_;
};

}  // namespace libtrain::bench
