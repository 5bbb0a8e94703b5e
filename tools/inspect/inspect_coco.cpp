#include <tools/inspect/inspect.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/data/formats/coco.hpp>
#include <libtrain/data/storage/open_storage.hpp>

#include <tools/inspect/class_facts.hpp>

namespace libtrain::inspect {

namespace {

void describe_images(const data::CocoAnnotations& found, Json& facts) {
  std::vector<double> widths;
  std::vector<double> heights;
  std::uint64_t without_annotations = 0;
  for (std::size_t image = 0; image < found.images.size(); ++image) {
    widths.push_back(found.images[image].width);
    heights.push_back(found.images[image].height);
    if (found.objects.of_image(image).empty()) ++without_annotations;
  }
  facts["images"] = found.images.size();
  facts["images_without_annotations"] = without_annotations;
  facts["images_to_train_on"] = data::trainable_image_ids(found).size();
  facts["widths"] = spread(widths);
  facts["heights"] = spread(heights);
}

void describe_annotations(const data::CocoAnnotations& found, Json& facts) {
  LabelCounts categories;
  std::uint64_t crowds = 0;
  std::uint64_t polygons = 0;
  std::uint64_t run_lengths = 0;
  for (const auto& annotation : found.objects.annotations) {
    ++categories[std::int64_t{annotation.category}];
    if (annotation.crowd) ++crowds;
    if (annotation.kind == data::CocoShape::polygons) ++polygons;
    if (annotation.kind == data::CocoShape::run_length) ++run_lengths;
  }
  const std::uint64_t annotations = found.objects.annotations.size();
  Json masks = Json::object();
  masks["polygons"] = polygons;
  masks["run_length"] = run_lengths;
  masks["without"] = annotations - polygons - run_lengths;
  std::vector<std::string> names;
  for (const auto& category : found.categories) names.push_back(category.name);
  facts["annotations"] = annotations;
  facts["crowds"] = crowds;
  facts["masks"] = std::move(masks);
  facts["categories"] = class_facts(categories, names, "annotations");
}

// See CocoFindings.
void describe_findings(const data::CocoFindings& findings, Json& facts) {
  Json left_out = Json::object();
  left_out["degenerate_boxes"] = findings.degenerate_boxes;
  left_out["without_polygon"] = findings.without_polygon;
  left_out["polygons"] = findings.polygons;
  left_out["unknown_images"] = findings.unknown_images;
  Json odd_ids = Json::object();
  odd_ids["duplicate"] = findings.duplicate_ids;
  odd_ids["not_positive"] = findings.ids_not_positive;
  facts["left_out"] = std::move(left_out);
  facts["odd_ids"] = std::move(odd_ids);
}

}  // namespace

Report inspect_coco(const InspectOptions& options) {
  const auto file = data::open_file(options.data);
  const auto found = data::read_coco(*file);
  Report report;
  report.facts["data"] = file->name();
  report.facts["format"] = "COCO instances";
  report.facts["bytes"] = file->size();
  describe_images(found, report.facts);
  describe_annotations(found, report.facts);
  describe_findings(found.findings, report.facts);
  return report;
}

}  // namespace libtrain::inspect
