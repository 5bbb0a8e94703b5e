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

/// A picture of an annotation file. Its file name is CocoAnnotations::file_name().
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

/// How an annotation says which pixels it means.
enum class CocoShape : std::uint8_t { none, polygons, run_length };

/// One object, or a region of many (`crowd`), in a picture; or a detection of one, with its score.
struct CocoAnnotation {
  std::int64_t id = 0;
  BoundingBox box = {};        ///< as in the file, never rounded
  double area = 0;             ///< as in the file: usually of the mask, not of the box; the box's where it is missing
  double score = 1;            ///< of a result; 1 for ground truth
  std::uint64_t shape = 0;     ///< the number of its first polygon or of its run-length mask in CocoShapes
  std::uint32_t polygons = 0;  ///< how many polygons, in line from the first
  std::uint32_t image = 0;     ///< the position in CocoAnnotations::images
  std::uint32_t category = 0;  ///< the contiguous category: the position in CocoAnnotations::categories
  CocoShape kind = CocoShape::none;
  bool crowd = false;
};

/// The masks of all annotations of a file, end to end: one allocation a kind, however many annotations.
struct CocoShapes {
  struct Mask {
    std::uint64_t first_count = 0;
    std::uint64_t counts = 0;
    std::uint32_t height = 0;
    std::uint32_t width = 0;
  };

  std::vector<double> coordinates = {};              ///< x0, y0, x1, y1, ... of polygon after polygon
  std::vector<std::uint64_t> polygon_offsets = {0};  ///< polygon k: coordinates from element k up to element k + 1
  std::vector<std::uint32_t> counts = {};            ///< runs of mask after mask
  std::vector<Mask> masks = {};

  /// x0, y0, x1, y1, ...: at least three points. `number` must be below polygon_offsets.size() - 1.
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

/// Annotations, or results, with those of a picture next to each other in the order of the file.
struct CocoObjects {
  std::vector<CocoAnnotation> annotations = {};
  std::vector<std::uint64_t> first_of_image = {0};  ///< image k: annotations from element k up to element k + 1
  CocoShapes shapes = {};

  /// Those of the picture at position `image` in CocoAnnotations::images.
  std::span<const CocoAnnotation> of_image(std::size_t image) const {
    return {annotations.data() + first_of_image[image], annotations.data() + first_of_image[image + 1]};
  }

  /// The annotation's mask in a picture of height x width, as pycocotools' annToRLE makes it: the union of the
  /// polygons, or the runs as they are. All zeros for CocoShape::none. Throws as polygon_mask.
  RunLength mask(const CocoAnnotation& annotation, std::uint32_t height, std::uint32_t width) const;
};

/// What a file held that is not as it should be.
struct CocoFindings {
  std::uint64_t degenerate_boxes = 0;  ///< annotations left out for a width or height of 0 or less
  std::uint64_t without_polygon = 0;   ///< annotations left out because none of their polygons is usable
  std::uint64_t polygons = 0;          ///< polygons left out: fewer than three points, or half a point
  std::uint64_t unknown_images = 0;    ///< annotations left out that name a picture which is not in the file
  std::uint64_t duplicate_ids = 0;     ///< annotations kept whose id another one had before
  std::uint64_t ids_not_positive = 0;  ///< annotations kept with an id that pycocotools takes for "no match"

  bool operator==(const CocoFindings&) const = default;
};

/// A COCO instances file in memory. A value; any thread may read it, several at once.
struct CocoAnnotations {
  std::vector<CocoImage> images = {};         ///< by id
  std::vector<CocoCategory> categories = {};  ///< by id: the position is the contiguous category
  CocoObjects objects = {};
  CocoFindings findings = {};
  std::string names = {};  ///< file names end to end

  std::string_view file_name(const CocoImage& image) const {
    return std::string_view{names}.substr(image.name_offset, image.name_length);
  }

  /// The positions of an image and of a category; nothing where there is none with that id.
  std::optional<std::size_t> find_image(std::int64_t id) const;
  std::optional<std::size_t> find_category(std::int64_t id) const;
};

/// The ids of the images to train on, in order: those with at least one annotation that is not a crowd, as detectron2
/// chooses them.
std::vector<std::int64_t> trainable_image_ids(const CocoAnnotations& annotations);

/// What annotations are read for.
enum class CocoUse {
  training,    ///< annotations without an area to learn from are left out and counted
  evaluation,  ///< every annotation is kept, as pycocotools keeps it
};

struct CocoOptions {
  CocoUse use = CocoUse::training;
};

/// Reads a COCO instances file (https://cocodataset.org/#format-data): an object with the arrays `images`, `categories`
/// and `annotations`, of which the last two may be missing, in any order and with keys in any order. Keys it does not
/// know are skipped, their values checked for no more than quotes and brackets.
///
/// simdjson reads the file as a whole: at most 4 GiB. Numbers become the same doubles as in Python. Memory: the result
/// and twice the list of annotations, and until it returns the file and as much again for simdjson.
///
/// Categories are numbered by the order of their ids, images are sorted by id. Annotations of `training` need a box of
/// positive width and height and, where polygons are given, one with three points and an even number of coordinates
/// (detectron2's rules); others are left out. Annotations of images which the file lacks are left out, ids that are 0,
/// negative or there twice are kept; all are counted in CocoFindings, and the log says so. Run-length masks must add up
/// to their size.
/// Throws EnvironmentError, one sentence that names the file, the byte offset, what was expected and what was found:
/// for what is not JSON, for missing keys or wrong types, for image or category ids that are there twice and for
/// annotations of an unknown category.
CocoAnnotations read_coco(const File& file, const CocoOptions& options = {});

/// Reads a COCO results file: an array of objects with `image_id`, `category_id`, `score` and `bbox` or a run-length
/// `segmentation` or both. As pycocotools' loadRes has it, the id is the position in the file from 1 on, the area is
/// the box's, or the mask's where there is no box, and such a box is made from the mask. Images and categories are
/// those of `truth`; an id that is not there is an EnvironmentError, as is everything that read_coco refuses.
CocoObjects read_coco_results(const File& file, const CocoAnnotations& truth, const CocoOptions& options = {});

}  // namespace libtrain::data
