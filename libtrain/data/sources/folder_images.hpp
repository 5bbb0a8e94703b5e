#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <libtrain/data/formats/image_folder.hpp>
#include <libtrain/data/read_ahead.hpp>
#include <libtrain/data/sources/image_source.hpp>
#include <libtrain/data/storage/prefetcher.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

struct FolderImagesOptions {
  std::string folder = {};  ///< below the storage's root, "" for the root itself
  ImageFolderOptions listing = {};

  /// A local folder for the list of images, so that a storage of millions is listed only once: see
  /// list_image_folder_once(). "" to list it each time.
  std::string manifest = {};

  Recheck recheck = Recheck::none;  ///< of that list

  /// Limits for fetching files to the cache of a CachedStorage ahead of the training loop. It must reach further than
  /// the loader's workers, so files_ahead is large, and bytes_ahead is the effective limit.
  PrefetcherOptions read_ahead = {.files_ahead = std::uint64_t{1} << 16};
};

/// Image files in folders named after their classes, in the order of list_image_folder(); labels are the numbers of the
/// classes. read() opens and closes the file.
class FolderImages final : public ImageSource {
 public:
  /// Throws what list_image_folder() throws, EnvironmentError if there are no images, and UsageError without a storage.
  explicit FolderImages(std::shared_ptr<const Storage> storage, const FolderImagesOptions& options = {});

  /// Uses an existing list of `folder`.
  FolderImages(std::shared_ptr<const Storage> storage, const std::string& folder, ImageList images,
               const PrefetcherOptions& read_ahead = FolderImagesOptions{}.read_ahead);

  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return images_.size(); }

  /// Throws as ImageSource::read; EnvironmentError as well for a file longer than 1 GiB.
  void read(std::uint64_t index, EncodedImage& image) const override;

  SampleOrigin origin(std::uint64_t index) const override;
  const std::vector<std::string>& classes() const override { return images_.classes(); }
  std::vector<std::uint64_t> blocks() const override { return {}; }

  /// If the storage is a CachedStorage, fetches files to its cache. If it does not know the files yet, because their
  /// list comes from a manifest, it is listed once; if that fails, a warning is logged and nothing is fetched. Throws
  /// UsageError for options that are not positive, and unless all indices are below size().
  std::unique_ptr<ReadAhead> read_ahead(const ReadingIndices& order) const override;

 private:
  std::string path(std::uint64_t index) const;

  std::shared_ptr<const Storage> storage_;
  std::string folder_;
  std::string name_;
  ImageList images_;
  PrefetcherOptions read_ahead_;
};

namespace detail {

/// Lists the images according to the options.
ImageList list_images(const Storage& storage, const FolderImagesOptions& options);

}  // namespace detail

}  // namespace libtrain::data
