#pragma once

#include <memory>
#include <string>

#include <bench/loader_workload.hpp>
#include <libtrain/data/image/geometry.hpp>

namespace libtrain::bench {

/// Epochs of the images and masks of `folder`, as bench/make_coco_images.py writes them: decoded, resized, mirrored
/// half of the time, normalised, and padded to batches of 2 images by a DataLoader with `threads` workers; the thread
/// that takes the batches only waits. Throws what CocoDetection throws.
std::unique_ptr<LoaderWorkload> coco_images(const std::string& folder, const data::ShorterSide& sizes, int threads);

}  // namespace libtrain::bench
