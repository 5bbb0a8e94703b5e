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

/// A sample's name in messages: the path of its file, and the byte offset if that is not 0.
std::string describe_sample(const data::ImageSource& source, std::uint64_t index);

/// Statistics of the images of a set, and lists of small, damaged and duplicate images. Takes less than 100 bytes per
/// image.
class ImageStatistics {
 public:
  /// Call it once for each image, in the order of their indices.
  void add(std::uint64_t index, const CheckedImage& image);

  /// Of all images whose bytes could be read.
  const LabelCounts& labels() const { return labels_; }

  /// Sets "widths", "heights", "kinds", "small_images" and "duplicates", and for Check::decode "damaged_images".
  void describe(const data::ImageSource& source, Check check, Json& facts) const;

 private:
  // Counts by header: each image is one of the first three, and may be any of the others as well.
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

  void add_header(std::uint64_t index, const data::ImageHeader& header);
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
