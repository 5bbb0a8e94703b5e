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

struct ImageFolderOptions {
  bool skip_unsupported = false;     ///< leave out and count the images that cannot be decoded, rather than to fail
  bool allow_empty_classes = false;  ///< a class without images keeps its number, rather than to fail
};

/// The images of an ImageFolder in the order of torchvision 0.26 (torchvision.datasets.ImageFolder): the folders right
/// below `folder` are the classes, numbered in the order of their names; images lie below them at any depth, in the
/// order of their folders' paths and then of their names. All orders are those of the strings' bytes, which for UTF-8
/// is that of code points. Files that lie in `folder` itself, and files whose names do not end like an image's, are
/// ignored. Endings in any case: .jpg, .jpeg and .png; and .ppm, .bmp, .pgm, .tif, .tiff and .webp, which torchvision
/// reads and libtrain does not: they are an error unless options.skip_unsupported.
///
/// As there, a class without images is an error, and a link that leads nowhere is an image where its name ends like
/// one: reading it fails. Otherwise than there, such a link in `folder` itself, which may stand for a class, is an
/// error, and a file system's own folder there, "lost+found", is no class. Object stores tell of an empty folder only
/// where something has marked it.
///
/// `folder` lies below the storage's root, "" for the root itself. Lists the storage once and opens nothing. Throws as
/// Storage::list; EnvironmentError as well for a folder without classes, a class without images, a link that
/// leads nowhere in `folder` itself, or the first image that cannot be decoded. Any thread may call it.
ImageList list_image_folder(const Storage& storage, const std::string& folder, const ImageFolderOptions& options = {});

namespace detail {

/// "Image folder '<name>'", for messages.
std::string image_folder_name(const Storage& storage, const std::string& folder);

/// The path of `folder` with a slash behind it, "" for the root: what the paths of all files in it begin with.
std::string image_folder_prefix(const std::string& folder);

/// list_image_folder() of `files`, whose paths begin with `prefix`; no classes at all are no error.
ImageList order_images(const std::vector<FileInfo>& files, std::string_view prefix, const std::string& subject,
                       const ImageFolderOptions& options);

}  // namespace detail

/// How much of a manifest is compared with the storage before it is used.
enum class Recheck {
  none,  ///< its own checksum, that it belongs to this folder, and the names of the classes, by a single look where the
         ///< storage has one
  sample,  ///< and up to 8 classes, spread evenly over all with the first and the last, are listed: paths and sizes
  full,    ///< all is listed
};

struct ImageManifestOptions {
  ImageFolderOptions folder = {};
  Recheck recheck = Recheck::none;
};

/// list_image_folder(), remembered in a file of the local folder `cache_folder`, so that millions of files are listed
/// once. Where the manifest is damaged, or differs from the storage as far as options.recheck looks, the folder is
/// listed again and the manifest replaced, with a warning. It is complete or absent; any number of processes may use
/// the cache folder. Where it cannot be written there is a warning only.
///
/// A manifest belongs to the storage's identity(), the folder in it and the options: with
/// Recheck::none a set whose images change in their place needs a new cache folder. Throws as list_image_folder.
ImageList list_image_folder_once(const Storage& storage, const std::string& folder, const std::string& cache_folder,
                                 const ImageManifestOptions& options = {});

/// The file in `cache_folder` that keeps this manifest.
std::string image_manifest_path(const Storage& storage, const std::string& folder, const std::string& cache_folder,
                                const ImageFolderOptions& options = {});

}  // namespace libtrain::data
