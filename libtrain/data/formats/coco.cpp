#include <libtrain/data/formats/coco.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/coco_reader.hpp>
#include <libtrain/data/formats/detail/json_window.hpp>
#include <libtrain/data/formats/detail/polygon_mask.hpp>

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

using simdjson::ondemand::object;

// "510.66," : an estimate of how many coordinates a file may hold. Room for them is only set aside; a vector that has
// to grow would have all of them in memory twice.
constexpr std::uint64_t kBytesOfCoordinate = 7;
constexpr std::uint64_t kMostExpectedCoordinates = 1 << 26;

std::uint64_t expected_coordinates(const File& file) {
  return std::min(file.size() / kBytesOfCoordinate, kMostExpectedCoordinates);
}

std::uint64_t begin_of_json(detail::JsonWindow& window) {
  const bool marked = window.text().starts_with("\xef\xbb\xbf");
  return window.skip_space(marked ? 3 : 0);
}

// One of the arrays of an instances file, which may be there once.
class Section {
 public:
  explicit Section(std::string_view key) : key_(key) {}

  std::string_view key() const { return key_; }
  bool seen() const { return seen_; }

  std::uint64_t read(detail::JsonWindow& window, simdjson::ondemand::parser& parser, std::uint64_t offset,
                     const detail::JsonObjectReader& reader) {
    if (seen_) window.fail(offset, text("the key '", key_, "' once"));
    seen_ = true;
    if (window.at_or_end(offset) != '[') window.fail(offset, text("an array for '", key_, "'"));
    return detail::read_json_objects(window, parser, offset + 1, reader);
  }

 private:
  std::string_view key_;
  bool seen_ = false;
};

void read_sections(detail::JsonWindow& window, detail::CocoReader& reader) {
  Section images{"images"};
  Section categories{"categories"};
  Section annotations{"annotations"};
  simdjson::ondemand::parser parser;
  const auto read_member = [&](std::string_view key, std::uint64_t offset) {
    if (key == images.key()) {
      return images.read(window, parser, offset, [&](object& each, std::uint64_t) { reader.read_image(each); });
    }
    if (key == categories.key()) {
      return categories.read(window, parser, offset, [&](object& each, std::uint64_t) { reader.read_category(each); });
    }
    if (key == annotations.key()) {
      return annotations.read(window, parser, offset,
                              [&](object& each, std::uint64_t at) { reader.read_annotation(each, at); });
    }
    return detail::skip_json_value(window, offset);
  };
  const std::uint64_t begin = begin_of_json(window);
  if (window.at_or_end(begin) == '[') window.fail(begin, "'{' (read_coco_results reads a results file)");
  detail::expect_json_end(window, detail::walk_json_object(window, begin, read_member));
  if (!images.seen()) window.fail(begin, "an object with the key 'images'");
}

void sort_by_id(CocoAnnotations& found) {
  const auto by_id = [](const auto& a, const auto& b) { return a.id < b.id; };
  std::sort(found.images.begin(), found.images.end(), by_id);
  std::sort(found.categories.begin(), found.categories.end(), by_id);
}

void report(const std::string& file, const CocoFindings& findings) {
  const auto say = [&](std::uint64_t count, std::string_view what) {
    if (count > 0) log_warning(text("COCO file '", file, "': ", count, " ", what, "."));
  };
  say(findings.degenerate_boxes, "annotations with a box without area are left out");
  say(findings.without_polygon, "annotations without a polygon of three points are left out");
  say(findings.polygons, "polygons of fewer than three points, or of an odd number of coordinates, are left out");
  say(findings.unknown_images, "annotations of images that are not in the file are left out");
  say(findings.duplicate_ids, "annotations have the id of another one; COCO's evaluation needs ids that differ");
  say(findings.ids_not_positive, "annotations have an id of 0 or less, which COCO's evaluation takes for no match");
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

CocoAnnotations read_coco(const File& file, const CocoOptions& options) {
  detail::JsonWindow window{file, options.window_bytes};
  detail::CocoReader reader{detail::CocoFile::instances, options.use, expected_coordinates(file)};
  read_sections(window, reader);
  CocoAnnotations found = std::move(reader.found());
  sort_by_id(found);
  detail::link_coco_objects(found.objects, reader.references(), found, detail::CocoFile::instances, found.findings,
                            window);
  detail::check_coco_ids(found.objects, found.findings);
  report(file.name(), found.findings);
  return found;
}

CocoObjects read_coco_results(const File& file, const CocoAnnotations& truth, const CocoOptions& options) {
  detail::JsonWindow window{file, options.window_bytes};
  detail::CocoReader reader{detail::CocoFile::results, options.use, expected_coordinates(file)};
  const std::uint64_t begin = begin_of_json(window);
  if (window.at_or_end(begin) != '[') window.fail(begin, "'[' of a results file");
  simdjson::ondemand::parser parser;
  const auto read = [&](object& each, std::uint64_t offset) { reader.read_annotation(each, offset); };
  detail::expect_json_end(window, detail::read_json_objects(window, parser, begin + 1, read));
  CocoObjects objects = std::move(reader.found().objects);
  CocoFindings findings = reader.found().findings;
  detail::link_coco_objects(objects, reader.references(), truth, detail::CocoFile::results, findings, window);
  report(file.name(), findings);
  return objects;
}

}  // namespace libtrain::data
