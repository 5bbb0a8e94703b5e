#include <libtrain/data/formats/coco_link.hpp>

#include <cstdint>
#include <utility>

#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/coco_id_table.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::uint32_t kNowhere = UINT32_MAX;

template <typename Records>
CocoIdTable positions_of(const Records& records) {
  CocoIdTable table{records.size()};
  std::uint32_t position = 0;
  for (const auto& record : records) table.insert(record.id, position++);
  return table;
}

// Moves annotations to where those of their image stand, in the order of the file: a counting sort.
void group_by_image(CocoObjects& objects, std::size_t images) {
  auto& first = objects.first_of_image;
  first.assign(images + 1, 0);
  for (const auto& annotation : objects.annotations) {
    if (annotation.image != kNowhere) ++first[annotation.image + std::size_t{1}];
  }
  for (std::size_t image = 0; image < images; ++image) first[image + 1] += first[image];
  std::vector<CocoAnnotation> grouped(first[images]);
  std::vector<std::uint64_t> next(first.begin(), first.end());
  for (const auto& annotation : objects.annotations) {
    if (annotation.image != kNowhere) grouped[next[annotation.image]++] = annotation;
  }
  objects.annotations = std::move(grouped);
}

}  // namespace

void link_coco_objects(CocoObjects& objects, const std::vector<CocoReference>& references, const CocoAnnotations& truth,
                       CocoFile file, CocoFindings& findings, JsonWindow& window) {
  const CocoIdTable images = positions_of(truth.images);
  const CocoIdTable categories = positions_of(truth.categories);
  for (std::size_t number = 0; number < references.size(); ++number) {
    const CocoReference& reference = references[number];
    CocoAnnotation& annotation = objects.annotations[number];
    const auto image = images.find(reference.image_id);
    annotation.image = image.value_or(kNowhere);
    if (!image) {
      if (file == CocoFile::results) {
        window.fail(reference.offset, text("a result for an image of the ground truth, not for ", reference.image_id));
      }
      ++findings.unknown_images;
      continue;
    }
    const auto category = categories.find(reference.category_id);
    if (!category) {
      window.fail(reference.offset, text("an object of a known category, not of ", reference.category_id));
    }
    annotation.category = *category;
  }
  group_by_image(objects, truth.images.size());
}

void check_coco_ids(const CocoObjects& objects, CocoFindings& findings) {
  CocoIdTable ids{objects.annotations.size()};
  for (const auto& annotation : objects.annotations) {
    if (annotation.id <= 0) ++findings.ids_not_positive;
    if (!ids.insert(annotation.id, 0)) ++findings.duplicate_ids;
  }
}

}  // namespace libtrain::data::detail
