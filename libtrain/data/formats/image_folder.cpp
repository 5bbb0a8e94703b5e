#include <libtrain/data/formats/image_folder.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>

#include <libtrain/base/detail/crc32c.hpp>
#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/sealed_message.hpp>
#include <libtrain/data/storage/detail/location.hpp>

namespace libtrain::data {

namespace {

constexpr std::array<std::string_view, 3> kDecoded = {".jpg", ".jpeg", ".png"};
constexpr std::array<std::string_view, 6> kUnsupported = {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};

// The parts of an image's path in the order in which torchvision compares them: class, folder and name. Whole paths
// have another order: "a/b.jpg" comes after "a-z/b.jpg".
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
  const std::string lower = detail::lower_case(name);
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view each) { return lower.ends_with(each); });
}

class Ordering {
 public:
  Ordering(std::string_view prefix, const std::string& subject, const ImageFolderOptions& options)
      : prefix_(prefix), subject_(subject), options_(options) {}

  void add(const FileInfo& file) {
    const std::string_view path{file.path};
    if (!path.starts_with(prefix_)) {
      throw EnvironmentError(text(subject_, ": expected files below it, found '", path, "' in its listing."));
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
    // Listings are sorted: the files of a class are adjacent.
    if (classes_.empty() || classes_.back() != place.class_name) classes_.push_back(place.class_name);
    if (detail::is_image(place.name)) {
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
                                  "', which libtrain cannot decode. Convert or remove it."));
    }
    ++skipped_;
  }

  // It may stand for the folder of a class; without that class, the classes after it would get other numbers.
  [[noreturn]] void fail_unreadable(std::string_view path) const {
    throw EnvironmentError(text(subject_, ": expected folders and files, found '", path,
                                "', a broken symbolic link or a special file. Restore the target of the link, or "
                                "remove the entry."));
  }

  [[noreturn]] void fail_empty(const std::vector<std::string_view>& classes) const {
    const auto others = classes.size() == 1 ? std::string{} : text(" and ", classes.size() - 1, " more");
    throw EnvironmentError(text(subject_, ": expected images (", join(kDecoded, ", "),
                                ") in the folder of each class, found none in '", classes.front(), "'", others,
                                ". Restore the images, or remove a folder that is not a class."));
  }

  std::string_view prefix_;
  const std::string& subject_;
  const ImageFolderOptions& options_;
  std::vector<Place> places_;
  std::vector<std::string_view> classes_;
  std::uint64_t skipped_ = 0;
};

constexpr std::string_view kFileFormat = "ltimage2";
constexpr std::uint64_t kLongestListFile = std::uint64_t{4} << 30;
constexpr std::size_t kSampledClasses = 8;

// The images follow the classes; the name of an image is its path below the folder of its class.
enum Field : std::uint32_t { kKey = 1, kCount = 2, kSkipped = 3, kClass = 4, kImage = 5 };
enum ImageField : std::uint32_t { kImageName = 1, kImageLabel = 2, kImageBytes = 3 };

struct Source {
  const Storage& storage;
  const std::string& folder;
  const ImageManifestOptions& options;
};

std::string key_of(const Storage& storage, const std::string& folder, const ImageFolderOptions& options) {
  return text(storage.identity(), '\n', folder, '\n', options.skip_unsupported ? "skips unsupported, " : "",
              options.allow_empty_classes ? "allows empty classes" : "");
}

std::string class_prefix(const std::string& folder, const std::string& class_name) {
  return detail::image_folder_prefix(folder) + class_name + '/';
}

detail::WireWriter encode(const ImageList& images, const std::string& key, const std::string& folder) {
  detail::WireWriter message;
  message.bytes(kKey, key);
  message.varint(kCount, images.size());
  message.varint(kSkipped, images.skipped());
  for (const auto& name : images.classes()) message.bytes(kClass, name);
  for (std::size_t i = 0; i < images.size(); ++i) {
    const auto prefix_bytes = class_prefix(folder, images.class_name(images.label(i))).size();
    detail::WireWriter image;
    image.bytes(kImageName, images.path(i).substr(prefix_bytes));
    image.varint(kImageLabel, images.label(i));
    image.varint(kImageBytes, images.bytes(i));
    message.bytes(kImage, image.message());
  }
  return message;
}

void decode_image(detail::WireReader image, const std::string& folder, ImageList& images) {
  std::string_view name;
  std::uint64_t label = 0;
  std::uint64_t bytes = 0;
  while (const auto field = image.next()) {
    if (field->number == kImageName) name = field->bytes;
    if (field->number == kImageLabel) label = field->value;
    if (field->number == kImageBytes) bytes = field->value;
  }
  const std::uint64_t least = images.size() == 0 ? 0 : images.label(images.size() - 1);
  if (label < least || label >= images.classes().size()) {
    image.fail(text("expected a label from ", least, " to below ", images.classes().size(), ", found ", label));
  }
  const auto number = static_cast<std::uint32_t>(label);
  std::string path = class_prefix(folder, images.class_name(number));
  path += name;
  images.add(path, number, bytes);
}

// std::nullopt if the manifest has another key; throws EnvironmentError for an invalid manifest.
std::optional<ImageList> decode(detail::WireReader message, const std::string& key, const std::string& folder) {
  ImageList images;
  std::string_view found_key;
  std::uint64_t count = 0;
  while (const auto field = message.next()) {
    if (field->number == kKey) found_key = field->bytes;
    if (field->number == kCount) count = field->value;
    if (field->number == kSkipped) images.set_skipped(field->value);
    if (field->number == kClass) images.add_class(std::string{field->bytes});
    if (field->number != kImage || field->type != detail::WireType::bytes) continue;
    if (found_key != key) return std::nullopt;
    decode_image(message.nested(*field), folder, images);
  }
  if (found_key != key) return std::nullopt;
  if (images.size() != count) message.fail(text("expected ", count, " images, found ", images.size()));
  return images;
}

// Whether `some` are the images of `all` from `begin` to `end`.
bool are_images_of(const ImageList& some, const ImageList& all, std::size_t begin, std::size_t end) {
  if (some.size() != end - begin) return false;
  for (std::size_t i = 0; i < some.size(); ++i) {
    if (some.path(i) != all.path(begin + i) || some.bytes(i) != all.bytes(begin + i)) return false;
  }
  return true;
}

// Throws EnvironmentError if the class cannot be listed.
bool is_current(const Source& source, const ImageList& images, std::uint32_t label) {
  const auto prefix = detail::image_folder_prefix(source.folder);
  auto options = source.options.folder;
  options.allow_empty_classes = true;
  const auto files = source.storage.list(prefix + images.class_name(label));
  const auto found =
      detail::order_images(files, prefix, detail::image_folder_name(source.storage, source.folder), options);
  return are_images_of(found, images, images.begin_of(label), images.begin_of(label + 1));
}

// Describes a difference from the storage; empty if none was found.
std::string sampled_difference(const Source& source, const ImageList& images) {
  const std::size_t classes = images.classes().size();
  const std::size_t sampled = std::min(classes, kSampledClasses);
  for (std::size_t i = 0; i < sampled; ++i) {
    const std::size_t chosen = sampled == 1 ? 0 : i * (classes - 1) / (sampled - 1);
    const auto label = static_cast<std::uint32_t>(chosen);
    try {
      if (is_current(source, images, label)) continue;
    } catch (const EnvironmentError& error) {
      return error.what();
    }
    return text("The files of the class '", images.class_name(label), "' have changed.");
  }
  return "";
}

// A class that was added or removed changes the labels of other classes, which no image shows.
std::string difference(const Source& source, const ImageList& images) {
  const auto classes = source.storage.folders(source.folder);
  if (classes && *classes != images.classes()) {
    return text("Its ", images.classes().size(), " classes differ from the ", classes->size(), " existing folders.");
  }
  return source.options.recheck == Recheck::sample ? sampled_difference(source, images) : std::string{};
}

std::optional<ImageList> load(const std::string& path, const std::string& key, const Source& source) {
  std::string reason;
  try {
    const auto message = detail::SealedMessage::read(path, kFileFormat, kLongestListFile);
    if (!message) return std::nullopt;
    auto images = decode(message->reader(), key, source.folder);
    if (!images) return std::nullopt;
    reason = difference(source, *images);
    if (reason.empty()) return images;
  } catch (const EnvironmentError& damage) {
    reason = damage.what();
  }
  log_warning(text(detail::image_folder_name(source.storage, source.folder),
                   " is listed again, because its manifest cannot be used. ", reason));
  return std::nullopt;
}

void save(const std::string& path, const std::string& key, const Source& source, const ImageList& images) {
  try {
    detail::write_sealed_message(path, kFileFormat, encode(images, key, source.folder).message());
  } catch (const EnvironmentError& failure) {
    log_warning(text(detail::image_folder_name(source.storage, source.folder),
                     " will be listed again by the next run. ", failure.what()));
  }
}

}  // namespace

std::string detail::image_folder_name(const Storage& storage, const std::string& folder) {
  return text("Image folder '", describe(storage, folder), "'");
}

bool detail::is_image(std::string_view path) {
  return ends_with_any(path, kDecoded);
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

std::string image_manifest_path(const Storage& storage, const std::string& folder, const std::string& cache_folder,
                                const ImageFolderOptions& options) {
  // A manifest contains the whole key: two keys with one checksum only replace each other's manifest.
  const auto checksum = libtrain::detail::crc32c(key_of(storage, folder, options));
  const auto name = text("images-", libtrain::detail::hexadecimal(checksum, 8).substr(2), ".manifest");
  return (std::filesystem::path(cache_folder) / name).string();
}

ImageList list_image_folder_once(const Storage& storage, const std::string& folder, const std::string& cache_folder,
                                 const ImageManifestOptions& options) {
  const Source source{storage, folder, options};
  const auto key = key_of(storage, folder, options.folder);
  const auto path = image_manifest_path(storage, folder, cache_folder, options.folder);
  const auto remembered = load(path, key, source);
  if (remembered && options.recheck != Recheck::full) return *remembered;
  auto images = list_image_folder(storage, folder, options.folder);
  if (remembered && *remembered == images) return images;
  if (remembered) {
    log_warning(text(detail::image_folder_name(storage, folder), " has changed since its manifest was made: it had ",
                     remembered->size(), " images and has ", images.size(), "."));
  }
  save(path, key, source, images);
  return images;
}

}  // namespace libtrain::data
