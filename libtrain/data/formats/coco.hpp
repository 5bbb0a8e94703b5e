#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/data/formats/run_length.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// An image of an annotation file. Its file name is CocoAnnotations::file_name().
struct CocoImage {
  std::int64_t id = 0;
  std::int32_t width = 0;   ///< pixels
  std::int32_t height = 0;  ///< pixels
  std::uint64_t name_offset = 0;
  std::uint64_t name_length = 0;
};

struct CocoCategory {
  std::int64_t id = 0;
  std::string name = {};
  std::string supercategory = {};
};

/// How an annotation describes its pixels.
enum class CocoShape : std::uint8_t { none, polygons, run_length };

/// An object, or a region of many objects (`crowd`), in an image; or a detection with its score.
struct CocoAnnotation {
  std::int64_t id = 0;
  BoundingBox box = {};        ///< as in the file, never rounded
  double area = 0;             ///< as in the file, usually that of the mask; that of the box if it is missing
  double score = 1;            ///< score of a result; 1 for ground truth
  std::uint64_t shape = 0;     ///< the number of its first polygon or of its run-length mask in CocoShapes
  std::uint32_t polygons = 0;  ///< the number of its polygons, which are consecutive
  std::uint32_t image = 0;     ///< the position in CocoAnnotations::images
  std::uint32_t category = 0;  ///< the contiguous category: the position in CocoAnnotations::categories
  CocoShape kind = CocoShape::none;
  bool crowd = false;
};

/// The concatenated masks of all annotations of a file: one allocation per kind for any number of annotations.
struct CocoShapes {
  struct Mask {
    std::uint64_t first_count = 0;
    std::uint64_t counts = 0;
    std::uint32_t height = 0;
    std::uint32_t width = 0;
  };

  std::vector<double> coordinates = {};              ///< x0, y0, x1, y1, ... of all polygons
  std::vector<std::uint64_t> polygon_offsets = {0};  ///< polygon k: coordinates from element k up to element k + 1
  std::vector<std::uint32_t> counts = {};            ///< runs of all masks
  std::vector<Mask> masks = {};

  /// x0, y0, x1, y1, ... of at least three points. `number` must be below polygon_offsets.size() - 1.
  std::span<const double> polygon(std::uint64_t number) const {
    const std::uint64_t begin = polygon_offsets[number];
    return {coordinates.data() + begin, coordinates.data() + polygon_offsets[number + 1]};
  }

  /// `number` must be below masks.size().
  RunLengthView run_length(std::uint64_t number) const {
    const Mask& mask = masks[number];
    return {mask.height, mask.width, std::span{counts.data() + mask.first_count, mask.counts}};
  }
};

/// Annotations, or results, grouped by image in the order of the file.
struct CocoObjects {
  std::vector<CocoAnnotation> annotations = {};
  std::vector<std::uint64_t> first_of_image = {0};  ///< image k: annotations from element k up to element k + 1
  CocoShapes shapes = {};

  /// The annotations of the image at position `image` in CocoAnnotations::images.
  std::span<const CocoAnnotation> of_image(std::size_t image) const {
    return {annotations.data() + first_of_image[image], annotations.data() + first_of_image[image + 1]};
  }

  /// Whether that image has an annotation that is not a crowd: detectron2 trains on such images only.
  bool has_object(std::size_t image) const;

  /// The annotation's mask in an image of height x width, as in pycocotools' annToRLE: the union of the polygons, or
  /// the unchanged runs. All zeros for CocoShape::none. Throws as polygon_mask.
  RunLength mask(const CocoAnnotation& annotation, std::uint32_t height, std::uint32_t width) const;
};

/// Problems in a file.
struct CocoFindings {
  std::uint64_t degenerate_boxes = 0;  ///< annotations left out because of a width or height of 0 or less
  std::uint64_t without_polygon = 0;   ///< annotations left out because none of their polygons is usable
  std::uint64_t polygons = 0;          ///< polygons left out: fewer than three points, or an odd number of coordinates
  std::uint64_t unknown_images = 0;    ///< annotations or results left out because of an unknown image
  std::uint64_t unknown_categories = 0;  ///< results left out because of an unknown category
  std::uint64_t malformed = 0;           ///< annotations left out with CocoMalformed::leave_out
  std::uint64_t duplicate_ids = 0;       ///< annotations kept with the id of an earlier one
  std::uint64_t ids_not_positive = 0;    ///< annotations kept with an id that pycocotools interprets as "no match"

  bool operator==(const CocoFindings&) const = default;
};

/// A COCO instances file in memory. A value; any thread may read it, several at once.
struct CocoAnnotations {
  std::vector<CocoImage> images = {};         ///< sorted by id
  std::vector<CocoCategory> categories = {};  ///< sorted by id: the position is the contiguous category
  CocoObjects objects = {};
  CocoFindings findings = {};
  std::string names = {};  ///< concatenated file names

  std::string_view file_name(const CocoImage& image) const {
    return std::string_view{names}.substr(image.name_offset, image.name_length);
  }

  /// The positions of an image and of a category; std::nullopt for an unknown id.
  std::optional<std::size_t> find_image(std::int64_t id) const;
  std::optional<std::size_t> find_category(std::int64_t id) const;
};

/// The ids of the images to train on, in order: those for which CocoObjects::has_object() is true.
std::vector<std::int64_t> trainable_image_ids(const CocoAnnotations& annotations);

/// The purpose for which annotations are read.
enum class CocoUse {
  training,    ///< annotations without an area are left out and counted
  evaluation,  ///< every annotation is kept, as in pycocotools
};

/// What happens with an annotation or a result that is malformed within well-formed JSON: a missing key, a value of the
/// wrong type, a box of three numbers, runs that do not add up, a category that is not in the file.
enum class CocoMalformed {
  refuse,     ///< EnvironmentError
  leave_out,  ///< it is left out and counted; the first one is described in the log
};

struct CocoOptions {
  CocoUse use = CocoUse::training;
  CocoMalformed malformed = CocoMalformed::refuse;
};

/// What is compared in an evaluation: pycocotools' iouType "bbox" or "segm".
enum class CocoIouType { boxes, masks };

/// Reads a COCO instances file (https://cocodataset.org/#format-data): an object with the arrays `images`, `categories`
/// and `annotations`, of which the last two may be missing, in any order and with keys in any order. Unknown keys are
/// skipped, and their values checked only for closed quotes and balanced brackets.
///
/// simdjson reads the whole file, at most 4 GiB. Numbers become the same doubles as in Python. Memory: the result and
/// twice the list of annotations, and during the call the file and the same size for simdjson.
///
/// Categories are numbered in the order of their ids, images are sorted by id. Annotations for `training` need a box of
/// positive width and height and, if they have polygons, one with three points and an even number of coordinates
/// (detectron2's rules); others are left out. Annotations of unknown images are left out; ids that are 0, negative or
/// not unique are kept. All these are counted in CocoFindings and logged. Run-length masks must add up to their size.
/// With CocoUse::evaluation, the last of several annotations with one id replaces the others, as it does in
/// pycocotools. Throws EnvironmentError that names the file, the byte offset, the id of the annotation if it has one,
/// what was expected and what was found: for invalid JSON, missing keys, wrong types, duplicate image or category ids,
/// and annotations of an unknown category.
CocoAnnotations read_coco(const File& file, const CocoOptions& options = {});

/// Reads a COCO results file: an array of objects with `image_id`, `category_id`, `score` and `bbox` or a run-length
/// `segmentation` or both. As in pycocotools' loadRes, the id is the position in the file from 1 on. The area of a
/// result with both is that of the box if the first result in the file has a box, and that of the mask otherwise; a box
/// that is missing is computed from the mask. Images and categories are those of `truth`; results of others are left
/// out and logged. Throws EnvironmentError if all results are of other images, and as read_coco; errors name the
/// position of the result instead of its id.
CocoObjects read_coco_results(const File& file, const CocoAnnotations& truth, const CocoOptions& options = {});

}  // namespace libtrain::data
