#pragma once

#include <cstddef>
#include <vector>

#include <libtrain/data/formats/coco_annotations.hpp>
#include <libtrain/data/formats/coco_reader.hpp>
#include <libtrain/data/formats/json_window.hpp>

namespace libtrain::data::detail {

/// Gives each annotation the positions of its image and its category in `truth`, whose images and categories are
/// sorted, and brings those of an image together. Annotations of images that are not there are dropped and counted
/// (CocoFile::instances) or refused (CocoFile::results). Throws EnvironmentError with the place in the window's file.
void link_coco_objects(CocoObjects& objects, const std::vector<CocoReference>& references, const CocoAnnotations& truth,
                       CocoFile file, CocoFindings& findings, JsonWindow& window);

/// Counts ids of annotations that are not positive or there more than once.
void check_coco_ids(const CocoObjects& objects, CocoFindings& findings);

}  // namespace libtrain::data::detail
