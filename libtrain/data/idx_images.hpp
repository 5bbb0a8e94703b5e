#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <libtrain/data/dataset.hpp>

namespace libtrain::data {

/// Which pair of MNIST's files to read: train-* or t10k-*.
enum class IdxSplit { train, test };

struct IdxImagesOptions {
  float mean = 0.f;                ///< subtracted from pixels that were scaled to 0..1
  float standard_deviation = 1.f;  ///< by which the difference is divided
};

/// Grey images and their labels from a directory of IDX files with MNIST's names, held in memory:
/// train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte; also with
/// a dot before "idx".
class IdxImages : public Dataset {
 public:
  /// Throws EnvironmentError where a file is missing, damaged, empty, or the two do not belong together; UsageError for
  /// a standard deviation that is not positive.
  IdxImages(const std::string& directory, IdxSplit split, IdxImagesOptions options = {});

  std::uint64_t size() const override { return labels_.size(); }

  /// float32 [1, height, width], (pixel / 255 - mean) / standard_deviation. Throws UsageError for an index past the
  /// end.
  Sample get(std::uint64_t index) const override;

  std::int64_t height() const { return height_; }
  std::int64_t width() const { return width_; }

  /// The largest label plus one.
  std::int64_t classes() const { return classes_; }

 private:
  IdxImagesOptions options_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
  std::int64_t height_ = 0;
  std::int64_t width_ = 0;
  std::int64_t classes_ = 0;
};

}  // namespace libtrain::data
