#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/data/formats/coco.hpp>
#include <libtrain/data/formats/run_length.hpp>

namespace libtrain::data {

/// A detected object, with the ids of the annotation file: an element of a COCO results file.
struct CocoResult {
  std::int64_t image_id = 0;
  std::int64_t category_id = 0;
  double score = 0;
  BoundingBox box = {};
  std::optional<RunLength> mask = {};  ///< of the size of the image

  bool operator==(const CocoResult&) const = default;
};

/// Results as bytes, for Communicator::all_gather_bytes, and back. A result takes 60 bytes, and its mask 8 and its
/// string form. The results of ranks may follow each other in any order, if each image is from one rank.
/// pack_coco_results throws UsageError for a mask whose runs do not add up to its size, unpack_coco_results
/// CommunicationError for bytes that pack_coco_results does not return.
std::string pack_coco_results(std::span<const CocoResult> results);
std::vector<CocoResult> unpack_coco_results(std::string_view bytes);

/// Results as evaluate_coco() takes them; their areas are those of the boxes or of the masks, as `type` says. Those of
/// a category that `truth` does not have are left out, as COCOeval does it: of the numbers 1 to 90 that a network may
/// give COCO's categories ten are unused. Throws UsageError that names the result for an unknown image, for numbers
/// that are not finite and, with CocoIouType::masks, for a mask that is missing or not of the size of its image, or
/// whose runs do not add up to it.
CocoObjects link_coco_results(std::span<const CocoResult> results, const CocoAnnotations& truth, CocoIouType type);

/// The keys of results in a file.
enum class CocoResultKeys {
  bbox,
  segmentation,  ///< then pycocotools and read_coco_results() compute boxes and areas from the masks
  both,          ///< then the areas are those of the boxes; results without a mask have `bbox` alone
};

/// Writes a COCO results file, which pycocotools' loadRes and read_coco_results() read. Numbers are written with the
/// digits that distinguish them from all other doubles. The local file is complete or absent. Throws EnvironmentError
/// if it cannot be written, UsageError for a number that is not finite and for a missing mask with
/// CocoResultKeys::segmentation.
void write_coco_results(const std::string& path, std::span<const CocoResult> results,
                        CocoResultKeys keys = CocoResultKeys::both);

}  // namespace libtrain::data
