#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace libtrain::data {

/// Labelled image files in a fixed order: all of class 0, then all of class 1, and so on. Takes 20 bytes an image, and
/// their paths. Immutable once it is built: any thread may read it.
class ImageList {
 public:
  /// Classes are numbered in the order in which they are added.
  void add_class(std::string name) { classes_.push_back(std::move(name)); }

  /// `label` is the number of a class, not below that of the image before.
  void add(std::string_view path, std::uint32_t label, std::uint64_t bytes) {
    paths_ += path;
    path_ends_.push_back(paths_.size());
    labels_.push_back(label);
    bytes_.push_back(bytes);
  }

  void set_skipped(std::uint64_t files) { skipped_ = files; }

  std::size_t size() const { return labels_.size(); }

  /// Of image number `image`, below size(): its path below the storage's root, its class, and how long its file is.
  std::string_view path(std::size_t image) const {
    const std::size_t begin = image == 0 ? 0 : path_ends_[image - 1];
    return std::string_view{paths_}.substr(begin, path_ends_[image] - begin);
  }
  std::uint32_t label(std::size_t image) const { return labels_[image]; }
  std::uint64_t bytes(std::size_t image) const { return bytes_[image]; }

  const std::vector<std::string>& classes() const { return classes_; }
  const std::string& class_name(std::uint32_t label) const { return classes_[label]; }

  /// The first image whose label is `label` or more, size() where there is none.
  std::size_t begin_of(std::uint32_t label) const {
    return static_cast<std::size_t>(std::lower_bound(labels_.begin(), labels_.end(), label) - labels_.begin());
  }

  /// Image files that were left out because they cannot be decoded.
  std::uint64_t skipped() const { return skipped_; }

  bool operator==(const ImageList&) const = default;

 private:
  std::string paths_;
  std::vector<std::size_t> path_ends_;  // in paths_; a path begins where the one before ends
  std::vector<std::uint32_t> labels_;
  std::vector<std::uint64_t> bytes_;
  std::vector<std::string> classes_;
  std::uint64_t skipped_ = 0;
};

}  // namespace libtrain::data
