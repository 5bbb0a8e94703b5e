#include <libtrain/data/sources/folder_images.hpp>

#include <cstddef>
#include <span>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/sources/source_checks.hpp>
#include <libtrain/data/storage/cached_storage.hpp>

namespace libtrain::data {

namespace {

// A longer file is not an image, and must not be read into memory.
constexpr std::uint64_t kLongestFile = std::uint64_t{1} << 30;

}  // namespace

ImageList detail::list_images(const Storage& storage, const FolderImagesOptions& options) {
  if (options.manifest.empty()) return list_image_folder(storage, options.folder, options.listing);
  return list_image_folder_once(storage, options.folder, options.manifest,
                                {.folder = options.listing, .recheck = options.recheck});
}

FolderImages::FolderImages(std::shared_ptr<const Storage> storage, const FolderImagesOptions& options)
    : FolderImages(storage, options.folder, detail::list_images(*detail::require_storage(storage), options),
                   options.read_ahead) {}

FolderImages::FolderImages(std::shared_ptr<const Storage> storage, const std::string& folder, ImageList images,
                           const PrefetcherOptions& read_ahead)
    : storage_(detail::require_storage(std::move(storage))),
      folder_(folder),
      name_(detail::describe(*storage_, folder_)),
      images_(std::move(images)),
      read_ahead_(read_ahead) {
  detail::require_images(images_.size(), name_);
}

void FolderImages::read(std::uint64_t index, EncodedImage& image) const {
  const auto file = detail::open_counted(*storage_, path(index));
  const std::uint64_t bytes = file->size();
  if (bytes > kLongestFile) {
    throw EnvironmentError(text("File '", file->name(), "', byte offset ", kLongestFile, ": expected an image of at ",
                                "most ", kLongestFile, " bytes, found ", bytes, "."));
  }
  image.bytes.resize(static_cast<std::size_t>(bytes));
  file->read_at(0, std::as_writable_bytes(std::span{image.bytes}));
  image.label = std::int64_t{images_.label(static_cast<std::size_t>(index))};
}

SampleOrigin FolderImages::origin(std::uint64_t index) const {
  return {.path = detail::describe(*storage_, path(index)), .bytes = images_.bytes(static_cast<std::size_t>(index))};
}

std::unique_ptr<ReadAhead> FolderImages::read_ahead(const ReadingIndices& order) const {
  auto cached = std::dynamic_pointer_cast<const CachedStorage>(storage_);
  if (!cached) return nullptr;
  std::vector<std::string> paths;
  for (const auto index : order()) paths.push_back(path(index));
  try {
    // One listing is faster than a request for each file.
    if (!paths.empty() && !cached->knows(paths.front())) cached->list(folder_);
    return std::make_unique<Prefetcher>(std::move(cached), std::move(paths), read_ahead_);
  } catch (const EnvironmentError& error) {
    log_warning(text("The images of '", name_, "' are not fetched ahead of reading. ", error.what()));
    return nullptr;
  }
}

std::string FolderImages::path(std::uint64_t index) const {
  detail::require_image(index, size(), name_);
  return std::string{images_.path(static_cast<std::size_t>(index))};
}

}  // namespace libtrain::data
