#include <libtrain/data/formats/image_manifest.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iomanip>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

#include <libtrain/base/crc32c.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/little_endian.hpp>
#include <libtrain/data/formats/output_file.hpp>
#include <libtrain/data/formats/protobuf_wire.hpp>
#include <libtrain/data/storage/local_file.hpp>

namespace libtrain::data {

namespace {

// The file: these bytes, the CRC-32C of the rest as a little-endian number, and a message in the wire format.
constexpr std::string_view kMagic = "ltimage1";
constexpr std::size_t kHeaderBytes = kMagic.size() + 4;
constexpr std::uint64_t kLongestFile = std::uint64_t{4} << 30;
constexpr std::size_t kSampledClasses = 8;

// Each image follows the classes; its name is its path below the folder of its class.
enum Field : std::uint32_t { kKey = 1, kCount = 2, kSkipped = 3, kClass = 4, kImage = 5 };
enum ImageField : std::uint32_t { kName = 1, kLabel = 2, kBytes = 3 };

struct Source {
  const Storage& storage;
  const std::string& folder;
  const ImageManifestOptions& options;
};

// A relative path means another folder in another working folder.
std::string full_name(const std::string& name) {
  if (name.find("://") != std::string::npos) return name;
  std::error_code error;
  const auto path = std::filesystem::absolute(name, error);
  return error ? name : path.lexically_normal().string();
}

std::string key_of(const Storage& storage, const std::string& folder, const ImageFolderOptions& options) {
  return text(full_name(storage.name()), '\n', folder, '\n', options.skip_unsupported ? "skips unsupported, " : "",
              options.allow_empty_classes ? "allows empty classes" : "");
}

std::string class_prefix(const std::string& folder, const std::string& class_name) {
  return detail::image_folder_prefix(folder) + class_name + '/';
}

std::string encode(const ImageList& images, const std::string& key, const std::string& folder) {
  WireWriter message;
  message.bytes(kKey, key);
  message.varint(kCount, images.size());
  message.varint(kSkipped, images.skipped());
  for (const auto& name : images.classes()) message.bytes(kClass, name);
  for (std::size_t i = 0; i < images.size(); ++i) {
    const auto prefix_bytes = class_prefix(folder, images.class_name(images.label(i))).size();
    WireWriter image;
    image.bytes(kName, images.path(i).substr(prefix_bytes));
    image.varint(kLabel, images.label(i));
    image.varint(kBytes, images.bytes(i));
    message.bytes(kImage, image.message());
  }
  std::string file{kMagic};
  detail::append_little_endian(file, crc32c(message.message()));
  return file + message.message();
}

void decode_image(WireReader image, const std::string& folder, ImageList& images) {
  std::string_view name;
  std::uint64_t label = 0;
  std::uint64_t bytes = 0;
  while (const auto field = image.next()) {
    if (field->number == kName) name = field->bytes;
    if (field->number == kLabel) label = field->value;
    if (field->number == kBytes) bytes = field->value;
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

// Nothing where the manifest belongs to something else; throws EnvironmentError for a damaged one.
std::optional<ImageList> decode(std::string_view file, const std::string& path, const std::string& key,
                                const std::string& folder) {
  if (file.size() < kHeaderBytes || !file.starts_with(kMagic)) {
    throw EnvironmentError(text("File '", path, "', byte offset 0: expected '", kMagic, "', found something else."));
  }
  const std::string_view content = file.substr(kHeaderBytes);
  if (crc32c(content) != detail::load_little_endian<std::uint32_t>(file.data() + kMagic.size())) {
    throw EnvironmentError(text("File '", path, "', byte offset ", kMagic.size(),
                                ": expected the checksum of what follows, found another."));
  }
  const std::string source = text("File '", path, "' after its header of ", kHeaderBytes, " bytes");
  WireReader message{content, source};
  ImageList images;
  std::string_view found_key;
  std::uint64_t count = 0;
  while (const auto field = message.next()) {
    if (field->number == kKey) found_key = field->bytes;
    if (field->number == kCount) count = field->value;
    if (field->number == kSkipped) images.set_skipped(field->value);
    if (field->number == kClass) images.add_class(std::string{field->bytes});
    if (field->number != kImage || field->type != WireType::bytes) continue;
    if (found_key != key) return std::nullopt;
    decode_image(message.nested(*field), folder, images);
  }
  if (found_key != key) return std::nullopt;
  if (images.size() != count) message.fail(text("expected ", count, " images, found ", images.size()));
  return images;
}

bool same_images(const ImageList& some, std::size_t begin, const ImageList& all, std::size_t all_begin,
                 std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (some.path(begin + i) != all.path(all_begin + i)) return false;
    if (some.bytes(begin + i) != all.bytes(all_begin + i)) return false;
  }
  return true;
}

// Throws EnvironmentError where the class cannot be listed.
bool is_current(const Source& source, const ImageList& images, std::uint32_t label) {
  const auto prefix = detail::image_folder_prefix(source.folder);
  auto options = source.options.folder;
  options.allow_empty_classes = true;
  const auto files = source.storage.list(prefix + images.class_name(label));
  const auto found =
      detail::order_images(files, prefix, detail::image_folder_name(source.storage, source.folder), options);
  const auto begin = images.begin_of(label);
  const auto count = images.begin_of(label + 1) - begin;
  return found.size() == count && same_images(found, 0, images, begin, count);
}

// What is found to differ from the storage, "" for nothing.
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

std::optional<ImageList> load(const std::string& path, const std::string& key, const Source& source) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::nullopt;
  std::string reason;
  try {
    auto images = decode(read_all(*detail::open_local_file(path), kLongestFile), path, key, source.folder);
    if (!images || source.options.recheck != Recheck::sample) return images;
    reason = sampled_difference(source, *images);
    if (reason.empty()) return images;
  } catch (const EnvironmentError& damage) {
    reason = damage.what();
  }
  log_warning(text(detail::image_folder_name(source.storage, source.folder),
                   " is listed again, as its manifest cannot be used. ", reason));
  return std::nullopt;
}

void save(const std::string& path, const std::string& key, const Source& source, const ImageList& images) {
  try {
    const auto folder = std::filesystem::path(path).parent_path();
    std::error_code error;
    if (!folder.empty()) std::filesystem::create_directories(folder, error);
    if (error) throw EnvironmentError(text("Cannot create the folder '", folder.string(), "': ", error.message(), "."));
    detail::OutputFile file(path);
    file.write(encode(images, key, source.folder));
    file.commit();
  } catch (const EnvironmentError& failure) {
    log_warning(text(detail::image_folder_name(source.storage, source.folder),
                     " will be listed again by the next run. ", failure.what()));
  }
}

}  // namespace

std::string image_manifest_path(const Storage& storage, const std::string& folder, const std::string& cache_folder,
                                const ImageFolderOptions& options) {
  std::ostringstream name;
  // Two that collide only displace each other, as a manifest holds the whole key.
  name << "images-" << std::hex << std::setw(8) << std::setfill('0') << crc32c(key_of(storage, folder, options))
       << ".manifest";
  return (std::filesystem::path(cache_folder) / name.str()).string();
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
