#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/data/sources/image_source.hpp>
#include <libtrain/data/storage/content_hash.hpp>

#include <tools/inspect/class_facts.hpp>
#include <tools/inspect/image_check.hpp>
#include <tools/inspect/report.hpp>

namespace libtrain::inspect {

/// How messages name a sample: the path of its file, and the offset where the file holds others.
std::string describe_sample(const data::ImageSource& source, std::uint64_t index);

/// What is known of the images of a set together, and of those that stand out. Takes less than 100 bytes an image.
class ImageStatistics {
 public:
  /// Once for each image, in the order of their indices.
  void add(std::uint64_t index, const CheckedImage& image);

  /// Of all images that could be read.
  const LabelCounts& labels() const { return labels_; }

  /// Sets "widths", "heights", "kinds", "small_images" and "duplicates", and "damaged_images" where `check` decoded
  /// them.
  void describe(const data::ImageSource& source, Check check, Json& facts) const;

 private:
  // By header: each image is one of the first three, and may be any of the others besides.
  struct Kinds {
    std::uint64_t jpeg_baseline = 0;
    std::uint64_t jpeg_progressive = 0;
    std::uint64_t png = 0;
    std::uint64_t png_interlaced = 0;
    std::uint64_t grey = 0;
    std::uint64_t cmyk = 0;
    std::uint64_t alpha = 0;
    std::uint64_t sixteen_bit = 0;
    std::uint64_t arithmetic_coding = 0;
    std::uint64_t restart_markers = 0;
  };
  struct Content {
    data::ContentHash hash = {};
    std::uint64_t index = 0;
  };

  void add_traits(std::uint64_t index, const ImageTraits& traits);
  Json kinds() const;
  Json small_images(const data::ImageSource& source) const;
  Json duplicates(const data::ImageSource& source) const;
  Json damaged_images(const data::ImageSource& source) const;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> find_duplicates() const;

  std::vector<double> widths_;
  std::vector<double> heights_;
  Kinds kinds_;
  LabelCounts labels_;
  std::vector<std::uint64_t> small_;
  std::vector<Content> contents_;
  std::vector<std::pair<std::uint64_t, long>> damaged_;  // index and damaged places
};

}  // namespace libtrain::inspect
