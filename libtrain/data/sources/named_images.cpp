#include <libtrain/data/sources/named_images.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/tar.hpp>
#include <libtrain/data/sources/detail/listed_storage.hpp>
#include <libtrain/data/sources/folder_images.hpp>
#include <libtrain/data/sources/shard_files.hpp>
#include <libtrain/data/sources/source_checks.hpp>

namespace libtrain::data {

namespace {

std::string path_in(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : text(folder, '/', name);
}

struct ArchiveOptions {
  std::string folder = {};
  std::optional<std::string> prefix = std::nullopt;  // all archives: the names decide which images are read
  std::string index_folder = {};
};

// Members of tar archives, by their names.
class ArchivedImages final : public ImageSource {
 public:
  ArchivedImages(std::shared_ptr<const Storage> storage, const ArchiveOptions& options,
                 const std::vector<std::string>& names)
      : storage_(std::move(storage)), name_(detail::describe(*storage_, options.folder)) {
    detail::ClassNames none;
    archives_ = detail::open_shards(
        *storage_, options, detail::ShardKind::tar, none,
        [](std::unique_ptr<const File> file, const ShardOptions& shard) { return TarFile(std::move(file), shard); });
    find(names);
  }

  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return places_.size(); }

  void read(std::uint64_t index, EncodedImage& image) const override {
    const auto place = place_of(index);
    archives_[place.shard].read(place.position, image.bytes);
    image.label = 0;
  }

  SampleOrigin origin(std::uint64_t index) const override {
    const auto place = place_of(index);
    const TarFile& archive = archives_[place.shard];
    return {.path = text(archive.name(), '/', archive.member_name(place.position)),
            .offset = archive.offset(place.position),
            .bytes = archive.bytes(place.position)};
  }

  const std::vector<std::string>& classes() const override { return no_classes_; }
  std::vector<std::uint64_t> blocks() const override { return {}; }

 private:
  void find(const std::vector<std::string>& names) {
    std::unordered_map<std::string_view, detail::ShardPlace> members;
    for (std::size_t archive = 0; archive < archives_.size(); ++archive) {
      for (std::uint64_t member = 0; member < archives_[archive].size(); ++member) {
        const auto [other, is_new] =
            members.try_emplace(archives_[archive].member_name(member), detail::ShardPlace{archive, member});
        if (is_new) continue;
        throw EnvironmentError(text(archives_[archive].describe(member), ": expected each image once, but it is in '",
                                    archives_[other->second.shard].name(),
                                    "' as well. Remove the archives of one set."));
      }
    }
    places_.reserve(names.size());
    const std::string* missing = nullptr;
    for (const auto& name : names) {
      if (const auto member = members.find(name); member != members.end()) {
        places_.push_back(member->second);
      } else if (missing == nullptr) {
        missing = &name;
      }
    }
    if (missing == nullptr) return;
    throw EnvironmentError(text("Folder '", name_, "': ", names.size() - places_.size(), " of ", names.size(),
                                " images are in none of its ", archives_.size(), " tar archives, such as '", *missing,
                                "'. Use the annotations that belong to these archives, or pack the images again."));
  }

  const detail::ShardPlace& place_of(std::uint64_t index) const {
    detail::require_image(index, size(), name_);
    return places_[static_cast<std::size_t>(index)];
  }

  std::shared_ptr<const Storage> storage_;  // open files may refer to it
  std::string name_;
  std::vector<std::string> no_classes_;
  std::vector<TarFile> archives_;
  std::vector<detail::ShardPlace> places_;  // of each image
};

bool is_file(const Storage& storage, const std::string& path) {
  try {
    storage.info(path);
    return true;
  } catch (const StorageUnavailable&) {
    throw;
  } catch (const EnvironmentError&) {
    return false;
  }
}

}  // namespace

std::unique_ptr<const ImageSource> open_named_images(std::shared_ptr<const Storage> storage, const std::string& folder,
                                                     const std::vector<std::string>& names,
                                                     const std::string& index_folder) {
  storage = detail::require_storage(std::move(storage));
  detail::require_images(names.size(), detail::describe(*storage, folder));
  // Before the folder is listed: one with 100,000 images takes a store many requests.
  if (!is_file(*storage, path_in(folder, names.front()))) {
    auto files = storage->list(folder);
    const bool has_archives = std::ranges::any_of(files, [&](const FileInfo& file) {
      return detail::shard_kind_of(file.path, folder, "") == detail::ShardKind::tar;
    });
    if (has_archives) {
      auto listed = std::make_shared<const detail::ListedStorage>(std::move(storage), folder, std::move(files));
      return std::make_unique<const ArchivedImages>(
          std::move(listed), ArchiveOptions{.folder = folder, .index_folder = index_folder}, names);
    }
  }
  ImageList list;
  list.add_class("image");
  for (const auto& name : names) list.add(path_in(folder, name), 0, 0);
  return std::make_unique<const FolderImages>(std::move(storage), folder, std::move(list));
}

}  // namespace libtrain::data
