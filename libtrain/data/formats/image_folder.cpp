#include <libtrain/data/formats/image_folder.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <tuple>

#include <libtrain/base/ascii.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

constexpr std::array<std::string_view, 3> kDecoded = {".jpg", ".jpeg", ".png"};
constexpr std::array<std::string_view, 6> kUnsupported = {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};

// An image's path in parts, which compare as torchvision compares them: class, folder and name one after the other.
// A path as a whole compares otherwise, as "a/b.jpg" comes after "a-z/b.jpg".
struct Place {
  std::string_view class_name = {};
  std::string_view folder = {};  // with the class, without the name
  std::string_view name = {};
  const FileInfo* file = nullptr;
};

bool in_order(const Place& left, const Place& right) {
  return std::tie(left.class_name, left.folder, left.name) < std::tie(right.class_name, right.folder, right.name);
}

bool ends_with_any(std::string_view name, std::span<const std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) {
    if (name.size() < ending.size()) return false;
    const auto end = name.substr(name.size() - ending.size());
    return std::equal(end.begin(), end.end(), ending.begin(),
                      [](char found, char expected) { return ascii_lower(found) == expected; });
  });
}

class Ordering {
 public:
  Ordering(std::string_view prefix, const std::string& subject, const ImageFolderOptions& options)
      : prefix_(prefix), subject_(subject), options_(options) {}

  void add(const FileInfo& file) {
    const std::string_view path{file.path};
    if (!path.starts_with(prefix_)) {
      throw EnvironmentError(text(subject_, ": expected files that lie in it, found '", path, "' in its listing."));
    }
    const auto inner = path.substr(prefix_.size());
    const auto first_slash = inner.find('/');
    if (first_slash == std::string_view::npos) {
      if (file.kind == FileKind::unreadable) fail_unreadable(path);
      return;
    }
    const auto last_slash = inner.rfind('/');
    const Place place{.class_name = inner.substr(0, first_slash),
                      .folder = inner.substr(0, last_slash),
                      .name = inner.substr(last_slash + 1),
                      .file = &file};
    // Listings are sorted: the files of a class follow each other.
    if (classes_.empty() || classes_.back() != place.class_name) classes_.push_back(place.class_name);
    if (ends_with_any(place.name, kDecoded)) {
      places_.push_back(place);
    } else if (ends_with_any(place.name, kUnsupported)) {
      skip(file);
    }
  }

  ImageList take() {
    std::sort(places_.begin(), places_.end(), in_order);
    std::sort(classes_.begin(), classes_.end());
    classes_.erase(std::unique(classes_.begin(), classes_.end()), classes_.end());
    if (classes_.size() > std::numeric_limits<std::uint32_t>::max()) {
      throw EnvironmentError(text(subject_, ": expected fewer than 2^32 classes, found ", classes_.size(), "."));
    }
    ImageList images;
    images.set_skipped(skipped_);
    std::vector<std::string_view> empty;
    auto place = places_.begin();
    for (const auto class_name : classes_) {
      const auto label = static_cast<std::uint32_t>(images.classes().size());
      images.add_class(std::string{class_name});
      const std::size_t before = images.size();
      for (; place != places_.end() && place->class_name == class_name; ++place) {
        images.add(place->file->path, label, place->file->size);
      }
      if (images.size() == before) empty.push_back(class_name);
    }
    if (!empty.empty() && !options_.allow_empty_classes) fail_empty(empty);
    return images;
  }

 private:
  void skip(const FileInfo& file) {
    if (!options_.skip_unsupported) {
      throw EnvironmentError(text(subject_, ": expected JPEG and PNG files, found '", file.path,
                                  "', which libtrain cannot decode; convert or remove it."));
    }
    ++skipped_;
  }

  // It may stand for the folder of a class, whose number the class behind it would take.
  [[noreturn]] void fail_unreadable(std::string_view path) const {
    throw EnvironmentError(text(subject_, ": expected folders and files, found '", path,
                                "', a link that leads nowhere or a special file; restore what it stands for, or remove "
                                "it."));
  }

  [[noreturn]] void fail_empty(const std::vector<std::string_view>& classes) const {
    const auto others = classes.size() == 1 ? std::string{} : text(" and ", classes.size() - 1, " more");
    throw EnvironmentError(text(subject_, ": expected images (", join(kDecoded, ", "),
                                ") in the folder of each class, found none in '", classes.front(), "'", others,
                                "; restore them, or remove what is no class."));
  }

  std::string_view prefix_;
  const std::string& subject_;
  const ImageFolderOptions& options_;
  std::vector<Place> places_;
  std::vector<std::string_view> classes_;
  std::uint64_t skipped_ = 0;
};

}  // namespace

std::string detail::image_folder_name(const Storage& storage, const std::string& folder) {
  return text("Image folder '", storage.name(), folder.empty() ? "" : "/", folder, "'");
}

std::string detail::image_folder_prefix(const std::string& folder) {
  return folder.empty() ? folder : folder + '/';
}

ImageList detail::order_images(const std::vector<FileInfo>& files, std::string_view prefix, const std::string& subject,
                               const ImageFolderOptions& options) {
  Ordering ordering(prefix, subject, options);
  for (const auto& file : files) ordering.add(file);
  return ordering.take();
}

ImageList list_image_folder(const Storage& storage, const std::string& folder, const ImageFolderOptions& options) {
  const auto subject = detail::image_folder_name(storage, folder);
  const auto files = storage.list(folder);
  auto images = detail::order_images(files, detail::image_folder_prefix(folder), subject, options);
  if (images.classes().empty()) {
    throw EnvironmentError(
        text(subject, ": expected a folder of images for each class, found ", files.size(), " files and no folder."));
  }
  return images;
}

}  // namespace libtrain::data
