#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

/// Labelled image files in a fixed order: all of class 0, then all of class 1, and so on. Takes 20 bytes per image, and
/// the paths. Immutable after it is built: any thread may read it.
class ImageList {
 public:
  /// Classes are numbered in the order in which they are added.
  void add_class(std::string name) { classes_.push_back(std::move(name)); }

  /// `label` is the number of a class, at least the label of the previous image.
  void add(std::string_view path, std::uint32_t label, std::uint64_t bytes) {
    paths_ += path;
    path_ends_.push_back(paths_.size());
    labels_.push_back(label);
    bytes_.push_back(bytes);
  }

  void set_skipped(std::uint64_t files) { skipped_ = files; }

  std::size_t size() const { return labels_.size(); }

  /// The path below the storage's root, the class and the file size of image number `image`, which is below size().
  std::string_view path(std::size_t image) const {
    const std::size_t begin = image == 0 ? 0 : path_ends_[image - 1];
    return std::string_view{paths_}.substr(begin, path_ends_[image] - begin);
  }
  std::uint32_t label(std::size_t image) const { return labels_[image]; }
  std::uint64_t bytes(std::size_t image) const { return bytes_[image]; }

  const std::vector<std::string>& classes() const { return classes_; }
  const std::string& class_name(std::uint32_t label) const { return classes_[label]; }

  /// The first image whose label is `label` or more; size() if there is none.
  std::size_t begin_of(std::uint32_t label) const {
    return static_cast<std::size_t>(std::lower_bound(labels_.begin(), labels_.end(), label) - labels_.begin());
  }

  /// The number of image files that were left out because libtrain cannot decode them.
  std::uint64_t skipped() const { return skipped_; }

  bool operator==(const ImageList&) const = default;

 private:
  std::string paths_;
  std::vector<std::size_t> path_ends_;  // in paths_; a path begins at the end of the previous one
  std::vector<std::uint32_t> labels_;
  std::vector<std::uint64_t> bytes_;
  std::vector<std::string> classes_;
  std::uint64_t skipped_ = 0;
};

struct ImageFolderOptions {
  bool skip_unsupported = false;     ///< leave out and count images that libtrain cannot decode, instead of failing
  bool allow_empty_classes = false;  ///< a class without images keeps its number, instead of failing
};

/// The images of an ImageFolder in the order of torchvision 0.26 (torchvision.datasets.ImageFolder): the folders
/// directly below `folder` are the classes, numbered in the order of their names; their images, at any depth, are
/// sorted by folder and then by name. Strings are compared as bytes, which for UTF-8 is the order of code points. Files
/// directly in `folder`, and files without the extension of an image, are ignored. Extensions in any case: .jpg, .jpeg
/// and .png; .ppm, .bmp, .pgm, .tif, .tiff and .webp, which torchvision reads and libtrain does not, are an error
/// unless options.skip_unsupported.
///
/// As in torchvision, a class without images is an error, and a broken link with the extension of an image is an image:
/// reading it fails. In contrast to torchvision, a broken link directly in `folder`, which may stand for a class, is an
/// error, and a file system's own folder "lost+found" there is not a class. Object stores list an empty folder only if
/// a marker exists for it.
///
/// `folder` is a path below the storage's root, "" for the root itself. Lists the storage once and opens no file.
/// Throws as Storage::list; EnvironmentError as well for a folder without classes, a class without images, a broken
/// link directly in `folder`, or the first image that libtrain cannot decode. Any thread may call it.
ImageList list_image_folder(const Storage& storage, const std::string& folder, const ImageFolderOptions& options = {});

namespace detail {

/// "Image folder '<name>'", for messages.
std::string image_folder_name(const Storage& storage, const std::string& folder);

/// Whether `path` has the extension of an image that libtrain decodes, in any case.
bool is_image(std::string_view path);

/// The path of `folder` and a slash, with which the paths of all its files begin; "" for the root.
std::string image_folder_prefix(const std::string& folder);

/// list_image_folder() of `files`, whose paths begin with `prefix`; having no classes is not an error.
ImageList order_images(const std::vector<FileInfo>& files, std::string_view prefix, const std::string& subject,
                       const ImageFolderOptions& options);

}  // namespace detail

/// How much of a manifest is compared with the storage before it is used.
enum class Recheck {
  none,    ///< its checksum, its folder, and the names of the classes if Storage::folders() returns them
  sample,  ///< also the paths and sizes in up to 8 evenly spread classes, including the first and the last
  full,    ///< everything: the folder is listed
};

struct ImageManifestOptions {
  ImageFolderOptions folder = {};
  Recheck recheck = Recheck::none;
};

/// list_image_folder(), saved to a file in the local folder `cache_folder` (the manifest), so that millions of files
/// are listed once. If the manifest is damaged, or options.recheck finds a difference from the storage, the folder is
/// listed again and the manifest replaced, with a warning. The file is complete or absent; any number of processes may
/// use the cache folder. If it cannot be written, only a warning is logged.
///
/// A manifest belongs to the storage's identity(), the folder and the options. With Recheck::none, use a new cache
/// folder after images were changed in place. Throws as list_image_folder.
ImageList list_image_folder_once(const Storage& storage, const std::string& folder, const std::string& cache_folder,
                                 const ImageManifestOptions& options = {});

/// The path of this manifest in `cache_folder`.
std::string image_manifest_path(const Storage& storage, const std::string& folder, const std::string& cache_folder,
                                const ImageFolderOptions& options = {});

}  // namespace libtrain::data
