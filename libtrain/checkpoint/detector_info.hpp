#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace libtrain {

/// What a program must know of a detector of objects in images besides its weights. A file of weights carries it in its
/// metadata, each value under the key in brackets: numbers as decimal text, lists as JSON.
///
/// Images are resized to the sizes of torchvision's detectors (data::ShorterSide; with antialiasing), scaled to 0..1
/// and normalised with the mean and deviation of ImageNet.
struct DetectorInfo {
  std::string model = {};                       ///< [model] its name for models::make_mask_rcnn(), such as "resnet50"
  std::vector<std::string> classes = {};        ///< [classes] names by label - 1: label 0 is the background
  std::vector<std::int64_t> category_ids = {};  ///< [category_ids] of the data set, for each class
  int min_size = 800;                           ///< [min_size] pixels of the shorter side
  int max_size = 1333;                          ///< [max_size] limit of the longer side in pixels
  bool frozen_batch_norm = true;  ///< [norm] "frozen" or "batch": whether the backbone's batch norms are constants
  double norm_epsilon = 1e-5;     ///< [norm_epsilon] of constant batch norms
};

/// The metadata for save_weights(), with the "format" that it has by default. Throws UsageError for sizes that are not
/// 1 <= min_size <= max_size <= 65535, for other than one id for each class, and for a name that is not UTF-8. Call it
/// before a training, not after it.
std::map<std::string, std::string> detector_metadata(const DetectorInfo& info);

/// The reverse, from a file of weights. A key that it lacks leaves the default; a `.pth` file has none. Throws
/// EnvironmentError that names the file, and the key, for a value that detector_metadata() does not write; also if the
/// file is missing, damaged or of another format.
DetectorInfo read_detector_info(const std::string& path);

}  // namespace libtrain
