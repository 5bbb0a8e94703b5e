#include <libtrain/data/idx_images.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include <ATen/ops/empty.h>

#include <libtrain/base/detail/crc32c.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/idx.hpp>

namespace libtrain::data {

namespace {

// The path of MNIST's file `name`; if only the spelling with a dot exists, the path of that file.
std::string path_of(const std::string& directory, const std::string& name) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    throw EnvironmentError(text("directory '", directory, "' with IDX files does not exist or is not a directory."));
  }
  const auto path = std::filesystem::path(directory) / name;
  std::string dotted = name;
  dotted.replace(dotted.find("-idx"), 1, ".");
  const auto alternative = std::filesystem::path(directory) / dotted;
  const bool use_alternative = !std::filesystem::exists(path, ignored) && std::filesystem::exists(alternative, ignored);
  return (use_alternative ? alternative : path).string();
}

// The magic number, and a number for each dimension.
constexpr std::uint64_t header_bytes(std::uint64_t dimensions) {
  return 4 + 4 * dimensions;
}

IdxFile read_with_dimensions(const std::string& path, std::size_t dimensions) {
  IdxFile file = read_idx(path);
  if (file.shape.size() != dimensions) {
    throw EnvironmentError(text("IDX file '", path, "', byte offset 3: expected ", dimensions, " dimensions, found ",
                                file.shape.size(), "."));
  }
  return file;
}

}  // namespace

IdxImages::IdxImages(const std::string& directory, IdxSplit split, IdxImagesOptions options) : options_(options) {
  if (!(options.standard_deviation > 0 && std::isfinite(options.standard_deviation) && std::isfinite(options.mean))) {
    throw UsageError(text("mean is ", options.mean, " and standard_deviation ", options.standard_deviation,
                          ". Both must be finite, and standard_deviation must be positive."));
  }
  if (options.classes && *options.classes < 1) {
    throw UsageError(text("classes is ", *options.classes, ". It must be at least 1."));
  }
  const std::string prefix = split == IdxSplit::train ? "train" : "t10k";
  images_path_ = path_of(directory, prefix + "-images-idx3-ubyte");
  const std::string labels_path = path_of(directory, prefix + "-labels-idx1-ubyte");
  IdxFile images = read_with_dimensions(images_path_, 3);
  IdxFile labels = read_with_dimensions(labels_path, 1);
  if (images.shape[0] != labels.shape[0]) {
    throw EnvironmentError(text("IDX file '", labels_path, "', byte offset 4: expected ", images.shape[0],
                                " labels, as many as '", images_path_, "' has images, found ", labels.shape[0], "."));
  }
  if (images.bytes.empty()) {
    throw EnvironmentError(text("IDX file '", images_path_, "', byte offset 4: expected at least one pixel, found ",
                                join(images.shape, " x "), "."));
  }
  height_ = images.shape[1];
  width_ = images.shape[2];
  pixels_ = std::move(images.bytes);
  labels_ = std::move(labels.bytes);
  classes_ = options.classes.value_or(std::int64_t{*std::max_element(labels_.begin(), labels_.end())} + 1);
  const auto outside =
      std::find_if(labels_.begin(), labels_.end(), [this](std::uint8_t label) { return label >= classes_; });
  if (outside != labels_.end()) {
    const auto index = static_cast<std::uint64_t>(outside - labels_.begin());
    detail::refuse_label(*outside, classes_, index, {.path = labels_path, .offset = header_bytes(1) + index});
  }
}

SampleOrigin IdxImages::origin(std::uint64_t index) const {
  const auto pixels = static_cast<std::uint64_t>(height_ * width_);
  return {.path = images_path_, .offset = header_bytes(3) + index * pixels};
}

DatasetIdentity IdxImages::identity() const {
  const auto checksum = [](const std::vector<std::uint8_t>& bytes) {
    return libtrain::detail::crc32c(std::as_bytes(std::span{bytes}));
  };
  return {text(size(), " samples"), text("labels with checksum ", checksum(labels_)),
          text("images of ", height_, " x ", width_, " with checksum ", checksum(pixels_))};
}

Sample IdxImages::get(std::uint64_t index, SampleRandom& /*random*/) const {
  if (index >= size()) throw UsageError(text("sample ", index, " is past the end of ", size(), " images."));
  Sample sample{at::empty({1, height_, width_}, at::kFloat), labels_[index]};
  const auto count = static_cast<std::uint64_t>(height_ * width_);
  const std::uint8_t* from = pixels_.data() + index * count;
  float* to = sample.image.mutable_data_ptr<float>();
  for (std::uint64_t i = 0; i < count; ++i) {
    to[i] = (static_cast<float>(from[i]) / 255.f - options_.mean) / options_.standard_deviation;
  }
  return sample;
}

}  // namespace libtrain::data
