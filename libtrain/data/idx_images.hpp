#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/data/dataset.hpp>

namespace libtrain::data {

/// The pair of MNIST's files to read: train-* or t10k-*.
enum class IdxSplit { train, test };

struct IdxImagesOptions {
  float mean = 0.f;                ///< of pixels scaled to 0..1
  float standard_deviation = 1.f;  ///< of pixels scaled to 0..1
  /// Labels must be below it. Without it the number of classes is the largest label plus one, so that a single wrong
  /// label adds classes: set it if it is known.
  std::optional<std::int64_t> classes = std::nullopt;
};

/// Grey images and their labels from a directory of IDX files with MNIST's names, held in memory:
/// train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte; a dot in
/// place of the dash before "idx" is accepted.
class IdxImages : public Dataset {
 public:
  /// Throws EnvironmentError if a file is missing, damaged or empty, or if the two files do not match; UsageError for a
  /// mean or standard deviation that is not finite, a standard deviation that is not positive, and a label that is not
  /// below `classes`, with its place in the file.
  IdxImages(const std::string& directory, IdxSplit split, IdxImagesOptions options = {});

  std::uint64_t size() const override { return labels_.size(); }

  /// float32 [1, height, width], (pixel / 255 - mean) / standard_deviation. Throws UsageError for an index past the
  /// end.
  Sample get(std::uint64_t index, SampleRandom& random) const override;

  SampleOrigin origin(std::uint64_t index) const override;
  DatasetIdentity identity() const override;
  std::int64_t class_count() const override { return classes_; }

  std::int64_t height() const { return height_; }
  std::int64_t width() const { return width_; }

  /// IdxImagesOptions::classes, or the largest label plus one.
  std::int64_t classes() const { return classes_; }

 private:
  IdxImagesOptions options_;
  std::string images_path_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
  std::int64_t height_ = 0;
  std::int64_t width_ = 0;
  std::int64_t classes_ = 0;
};

}  // namespace libtrain::data
