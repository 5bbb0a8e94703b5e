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

  /// A local folder that keeps the list of images, so that a storage of millions is listed only once: see
  /// list_image_folder_once(). "" to list it each time.
  std::string manifest = {};

  Recheck recheck = Recheck::none;  ///< of that list

  /// What is fetched to the cache of a CachedStorage ahead of the batches that the training loop has taken: further
  /// than the loader's workers are, hence many files, which bytes_ahead bounds.
  PrefetcherOptions read_ahead = {.files_ahead = std::uint64_t{1} << 16};
};

/// Image files in folders named after their classes, as list_image_folder() orders them; labels are the numbers of the
/// classes. A file is opened when it is read, and closed then.
class FolderImages final : public ImageSource {
 public:
  /// Throws what list_image_folder() throws, EnvironmentError where there are no images, and UsageError without a
  /// storage.
  explicit FolderImages(std::shared_ptr<const Storage> storage, const FolderImagesOptions& options = {});

  /// Of a list that was made of `folder` before.
  FolderImages(std::shared_ptr<const Storage> storage, const std::string& folder, ImageList images,
               const PrefetcherOptions& read_ahead = FolderImagesOptions{}.read_ahead);

  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return images_.size(); }

  /// Throws as ImageSource::read; EnvironmentError as well for a file longer than 1 GiB.
  void read(std::uint64_t index, EncodedImage& image) const override;

  SampleOrigin origin(std::uint64_t index) const override;
  const std::vector<std::string>& classes() const override { return images_.classes(); }
  std::vector<std::uint64_t> blocks() const override { return {}; }

  /// Where the storage is a CachedStorage, fetches files to its cache. Where it tells nothing of files yet, since their
  /// list comes from a manifest, it is listed once. Where that fails a warning is all, and nothing is fetched. Throws
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

/// The images that the options ask for.
ImageList list_images(const Storage& storage, const FolderImagesOptions& options);

}  // namespace detail

}  // namespace libtrain::data
