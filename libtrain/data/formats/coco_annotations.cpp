#include <libtrain/data/formats/coco_annotations.hpp>

#include <algorithm>

#include <libtrain/data/formats/polygon_mask.hpp>

namespace libtrain::data {

namespace {

template <typename Records>
std::optional<std::size_t> find_by_id(const Records& records, std::int64_t id) {
  const auto found = std::lower_bound(records.begin(), records.end(), id,
                                      [](const auto& record, std::int64_t wanted) { return record.id < wanted; });
  if (found == records.end() || found->id != id) return std::nullopt;
  return static_cast<std::size_t>(found - records.begin());
}

RunLength empty_mask(std::uint32_t height, std::uint32_t width) {
  const auto pixels = static_cast<std::uint32_t>(detail::mask_pixels(height, width));
  return {.height = height, .width = width, .counts = {pixels}};
}

}  // namespace

RunLength CocoObjects::mask(const CocoAnnotation& annotation, std::uint32_t height, std::uint32_t width) const {
  if (annotation.kind == CocoShape::run_length) {
    const RunLengthView runs = shapes.run_length(annotation.shape);
    return {.height = runs.height, .width = runs.width, .counts = {runs.counts.begin(), runs.counts.end()}};
  }
  if (annotation.kind == CocoShape::none) return empty_mask(height, width);
  std::vector<RunLength> masks;
  masks.reserve(annotation.polygons);
  for (std::uint64_t number = 0; number < annotation.polygons; ++number) {
    masks.push_back(polygon_mask(shapes.polygon(annotation.shape + number), height, width));
  }
  return merge_masks(std::vector<RunLengthView>(masks.begin(), masks.end()), Merge::united);
}

std::optional<std::size_t> CocoAnnotations::find_image(std::int64_t id) const {
  return find_by_id(images, id);
}

std::optional<std::size_t> CocoAnnotations::find_category(std::int64_t id) const {
  return find_by_id(categories, id);
}

std::vector<std::int64_t> trainable_image_ids(const CocoAnnotations& annotations) {
  std::vector<std::int64_t> ids;
  for (std::size_t image = 0; image < annotations.images.size(); ++image) {
    const auto of_image = annotations.objects.of_image(image);
    const bool has_object =
        std::any_of(of_image.begin(), of_image.end(), [](const CocoAnnotation& each) { return !each.crowd; });
    if (has_object) ids.push_back(annotations.images[image].id);
  }
  return ids;
}

}  // namespace libtrain::data
