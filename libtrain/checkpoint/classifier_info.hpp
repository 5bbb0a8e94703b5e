#pragma once

#include <map>
#include <string>
#include <vector>

namespace libtrain {

/// What a program must know of a classifier of images besides its weights. A file of weights carries it in its
/// metadata, each value under the key in brackets: numbers as decimal text, lists as JSON.
///
/// Preprocessing is that of torchvision's reference evaluation (data::evaluation_images()): the shorter side is resized
/// to `short_side` pixels, the centre is cropped, values are scaled to 0..1 and normalised for each channel.
struct ClassifierInfo {
  std::string model = {};                 ///< [model] its name for models::make_model(), such as "resnet50"
  std::vector<std::string> classes = {};  ///< [classes] names by label; empty if they are not known
  int image_side = 224;                   ///< [image_side] height and width of the crop in pixels
  int short_side = 256;                   ///< [short_side] in pixels, at least image_side
  /// [mean], [std] Of the values 0..1 of each channel, 1 (grey) or 3 (red, green, blue), which are the model's input.
  std::vector<double> mean = {0.485, 0.456, 0.406};
  std::vector<double> standard_deviation = {0.229, 0.224, 0.225};
};

/// The metadata for save_weights(), with the "format" that it has by default. Throws UsageError for sides that are not
/// 1 <= image_side <= short_side <= 65535, other than 1 or 3 channels, a mean that is not finite, a deviation that is
/// not above 0, and a name of a class or model that is not UTF-8. Call it before a training, not after it.
std::map<std::string, std::string> classifier_metadata(const ClassifierInfo& info);

/// The reverse. A key that the metadata lacks leaves the default, so that files without any, such as torchvision's, are
/// classifiers of ImageNet's preprocessing without names. Throws EnvironmentError, which names the file `path` and the
/// key, for a value that classifier_metadata() does not write.
ClassifierInfo read_classifier_info(const std::map<std::string, std::string>& metadata, const std::string& path);

/// Of a file of weights: a `.pth` file has no metadata. Throws EnvironmentError that names the file, also if it is
/// missing, damaged or of another format.
ClassifierInfo read_classifier_info(const std::string& path);

}  // namespace libtrain
