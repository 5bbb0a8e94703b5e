#include <libtrain/data/sources/open_image_source.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/image_folder.hpp>
#include <libtrain/data/sources/detail/listed_storage.hpp>
#include <libtrain/data/sources/shard_files.hpp>
#include <libtrain/data/sources/source_checks.hpp>

namespace libtrain::data {

namespace {

using detail::ShardKind;

struct Contents {
  std::map<ShardKind, std::uint64_t> shards = {};
  std::uint64_t below = 0;         // files in folders of the folder
  std::uint64_t images_below = 0;  // images among them
};

Contents contents_of(const std::vector<FileInfo>& files, const OpenImageSourceOptions& options) {
  const std::size_t begin = options.folder.empty() ? 0 : options.folder.size() + 1;
  Contents contents;
  for (const auto& file : files) {
    if (const auto kind = detail::shard_kind_of(file.path, options.folder, options.prefix)) {
      ++contents.shards[*kind];
    } else if (file.path.find('/', begin) != std::string::npos) {
      ++contents.below;
      if (detail::is_image(file.path)) ++contents.images_below;
    }
  }
  return contents;
}

void require_one_format(const Contents& contents, const std::string& name, std::size_t files) {
  constexpr std::string_view kFormats =
      "Parquet files, tar archives or TFRecord files directly in it, or images in folders named after their classes";
  std::vector<std::string> found;
  for (const auto& [kind, count] : contents.shards) found.push_back(text(detail::name_of(kind), " (", count, ")"));
  if (found.empty() && contents.below == 0) {
    throw EnvironmentError(
        text("Folder '", name, "': expected ", kFormats, "; found none of them, but ", files, " other files."));
  }
  if (contents.images_below > 0) found.push_back(text("images in folders (", contents.images_below, ")"));
  if (found.size() > 1) {
    throw EnvironmentError(text("Folder '", name, "': expected one of ", kFormats, "; found ", join(found, " and "),
                                ". Move them to separate folders, or use the class of one format, such as "
                                "ParquetImages."));
  }
}

bool has_manifest(const Storage& storage, const FolderImagesOptions& options) {
  if (options.manifest.empty()) return false;
  const auto path = image_manifest_path(storage, options.folder, options.manifest, options.listing);
  std::error_code error;
  return std::filesystem::exists(path, error);
}

template <typename Source, typename Options>
std::unique_ptr<const ImageSource> open_shards(std::shared_ptr<const Storage> storage, Options options,
                                               const OpenImageSourceOptions& common) {
  options.folder = common.folder;
  options.prefix = common.prefix;
  if constexpr (requires { options.index_folder; }) options.index_folder = common.index_folder;
  return std::make_unique<const Source>(std::move(storage), options);
}

}  // namespace

std::unique_ptr<const ImageSource> open_image_source(std::shared_ptr<const Storage> storage,
                                                     const OpenImageSourceOptions& options) {
  storage = detail::require_storage(std::move(storage));
  auto folder_images = options.folder_images;
  folder_images.folder = options.folder;
  folder_images.manifest = options.index_folder;
  if (has_manifest(*storage, folder_images)) {
    return std::make_unique<const FolderImages>(std::move(storage), folder_images);
  }

  auto files = storage->list(options.folder);
  detail::require_finished_set(*storage, options.folder, files);
  const auto contents = contents_of(files, options);
  require_one_format(contents, detail::describe(*storage, options.folder), files.size());
  auto listed = std::make_shared<const detail::ListedStorage>(storage, options.folder, std::move(files));
  if (contents.shards.empty()) {
    return std::make_unique<const FolderImages>(std::move(storage), options.folder,
                                                detail::list_images(*listed, folder_images), folder_images.read_ahead);
  }
  switch (contents.shards.begin()->first) {
    case ShardKind::parquet:
      return open_shards<ParquetImages>(std::move(listed), options.parquet_images, options);
    case ShardKind::tar:
      return open_shards<WebDatasetImages>(std::move(listed), options.web_dataset_images, options);
    case ShardKind::tf_record:
      break;
  }
  return open_shards<TfRecordImages>(std::move(listed), options.tf_record_images, options);
}

}  // namespace libtrain::data
