#pragma once

#include <cstddef>

#include <libtrain/data/formats/coco_annotations.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data {

/// What annotations are read for.
enum class CocoUse {
  training,    ///< annotations without an area to learn from are left out and counted
  evaluation,  ///< every annotation is kept, as pycocotools keeps it
};

struct CocoOptions {
  CocoUse use = CocoUse::training;
  std::size_t window_bytes = 4 << 20;  ///< how much of the file is in memory at a time, unless an object is longer
};

/// Reads a COCO instances file (https://cocodataset.org/#format-data): an object with the arrays `images`, `categories`
/// and `annotations`, of which the last two may be missing, in any order and with keys in any order. Keys it does not
/// know are skipped, their values checked for no more than quotes and brackets, up to 1,024 levels deep.
///
/// One pass with simdjson's on-demand interface over a window of the file; numbers of polygons are read by a loop of
/// its own and become the same doubles as in Python. Memory: the result, twice the list of annotations, and about ten
/// times the window.
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
