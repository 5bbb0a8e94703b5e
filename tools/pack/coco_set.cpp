#include <tools/pack/coco_set.hpp>

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/coco.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::pack {

namespace {

constexpr std::uint64_t kLongestAnnotations = std::uint64_t{4} << 30;  // as read_coco()

}  // namespace

std::string coco_annotations_path(const std::string& split) {
  return text("annotations/instances_", split, ".json");
}

CocoSet list_coco_set(const data::Storage& storage, const std::string& split) {
  const auto file = storage.open(coco_annotations_path(split));
  const auto found = data::read_coco(*file, {.use = data::CocoUse::evaluation});
  if (found.images.empty()) throw EnvironmentError(text("COCO file '", file->name(), "' lists no images to pack."));

  std::unordered_map<std::string, std::uint64_t> bytes;
  for (auto& each : storage.list(split)) bytes.emplace(std::move(each.path), each.size);
  CocoSet set{.categories = found.categories.size(), .annotations = data::read_all(*file, kLongestAnnotations)};
  set.images.add_class(split);
  std::unordered_set<std::string_view> names;
  for (const auto& image : found.images) {
    const auto name = found.file_name(image);
    if (!names.insert(name).second) {
      throw EnvironmentError(text("COCO file '", file->name(), "': expected each file once, but two images have the ",
                                  "file_name '", name, "'. Remove one of them."));
    }
    const auto path = text(split, '/', name);
    const auto entry = bytes.find(path);
    if (entry == bytes.end()) {
      throw EnvironmentError(text("COCO file '", file->name(), "' lists the image '", name, "', but '", storage.name(),
                                  "/", split, "' has no such file. Complete the folder, or remove the image from the ",
                                  "annotations."));
    }
    set.images.add(path, 0, entry->second);
    set.sizes.push_back({.width = image.width, .height = image.height});
  }
  return set;
}

}  // namespace libtrain::pack
