#include <libtrain/data/formats/coco.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include <simdjson.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/coco_reader.hpp>
#include <libtrain/data/formats/detail/json.hpp>
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

namespace ondemand = simdjson::ondemand;

// "510.66,": to estimate the number of coordinates in a file. Only address space is reserved for them; a growing vector
// would have all of them in memory twice.
constexpr std::uint64_t kBytesOfCoordinate = 7;
constexpr std::uint64_t kMaxExpectedCoordinates = 1 << 26;

std::uint64_t expected_coordinates(const File& file) {
  return std::min(file.size() / kBytesOfCoordinate, kMaxExpectedCoordinates);
}

std::string fault_message(const File& file, std::string_view json, const detail::JsonFault& fault) {
  const auto offset = std::min(static_cast<std::size_t>(fault.at - json.data()), json.size());
  return text("JSON file '", file.name(), "', byte offset ", offset, fault.record.empty() ? "" : ", ", fault.record,
              ": expected ", fault.expected, ", found ",
              detail::json_excerpt(json.substr(offset), "the end of the file"), ".");
}

// Calls read(text of the file with the padding of simdjson). Throws EnvironmentError that names the file, the byte
// offset, what was expected and what was found. Logs the first annotation that the reader has left out as malformed.
void read_json_file(const File& file, const detail::CocoReader& reader,
                    const std::function<void(const simdjson::padded_string&)>& read) {
  if (file.size() > simdjson::SIMDJSON_MAXSIZE_BYTES) {
    throw EnvironmentError(text("JSON file '", file.name(), "' has ", file.size(), " bytes, but at most ",
                                simdjson::SIMDJSON_MAXSIZE_BYTES, " can be read."));
  }
  simdjson::padded_string json = detail::read_json_text(file, 0, file.size());
  const std::string_view whole = json;
  if (whole.starts_with("\xef\xbb\xbf")) std::memset(json.data(), ' ', 3);  // a byte order mark
  try {
    read(json);
  } catch (const detail::JsonFault& fault) {
    throw EnvironmentError(fault_message(file, whole, fault));
  }
  if (const auto& first = reader.first_malformed()) log_warning(fault_message(file, whole, *first));
}

// Throws JsonFault unless the text begins and ends with these brackets.
void require_brackets(const simdjson::padded_string& json, char first, char last, std::string expected) {
  const std::string_view whole = json;
  const std::size_t begin = std::min(whole.find_first_not_of(detail::kJsonSpace), whole.size());
  if (!whole.substr(begin).starts_with(first)) throw detail::JsonFault{json.data() + begin, std::move(expected)};
  const std::size_t end = whole.find_last_not_of(detail::kJsonSpace);
  if (whole[end] != last) throw detail::JsonFault{json.data() + end, text("'", last, "' at the end of the file")};
}

void read_sections(const simdjson::padded_string& json, detail::CocoReader& reader) {
  require_brackets(json, '{', '}', "'{' (read_coco_results reads a results file)");
  bool seen[3] = {};
  detail::parse_json(json, [&](ondemand::document& document) {
    ondemand::object object;
    if (document.get_object().get(object) != simdjson::SUCCESS) throw detail::JsonFault{.expected = "an object"};
    detail::for_each_json_field(object, [&](std::string_view key, ondemand::value& value) {
      const auto read = [&](bool& section_seen, auto read_one) {
        if (section_seen) throw detail::JsonFault{detail::json_begin(value), text("the key '", key, "' once")};
        section_seen = true;
        detail::for_each_json_element(detail::json_array(value, key), key,
                                      [&](ondemand::value& each) { (reader.*read_one)(each); });
      };
      if (key == "images") return read(seen[0], &detail::CocoReader::read_image);
      if (key == "categories") return read(seen[1], &detail::CocoReader::read_category);
      if (key == "annotations") return read(seen[2], &detail::CocoReader::read_annotation);
    });
  });
  if (!seen[0]) throw detail::JsonFault{json.data(), "an object with the key 'images'"};
}

void sort_by_id(CocoAnnotations& found) {
  const auto by_id = [](const auto& a, const auto& b) { return a.id < b.id; };
  std::sort(found.images.begin(), found.images.end(), by_id);
  std::sort(found.categories.begin(), found.categories.end(), by_id);
}

// `objects` are the annotations or results of the file.
void report(const std::string& file, const CocoFindings& findings, std::string_view objects) {
  const auto say = [&](std::uint64_t count, std::string_view which, std::string_view what) {
    if (count > 0) log_warning(text("COCO file '", file, "': ", count, " ", which, " ", what, "."));
  };
  say(findings.degenerate_boxes, objects, "with a box without area are left out");
  say(findings.without_polygon, objects, "without a polygon of three points are left out");
  say(findings.polygons, "polygons", "of fewer than three points, or of an odd number of coordinates, are left out");
  say(findings.unknown_images, objects, "of images that the annotation file does not list are left out");
  say(findings.unknown_categories, objects, "of categories that the annotation file does not list are left out");
  say(findings.malformed, objects, "are malformed and left out; the line before describes the first");
  say(findings.duplicate_ids, objects, "have the id of another one; COCO's evaluation needs unique ids");
  say(findings.ids_not_positive, objects, "have an id of 0 or less, which COCO's evaluation counts as no match");
}

}  // namespace

bool CocoObjects::has_object(std::size_t image) const {
  const auto objects = of_image(image);
  return std::any_of(objects.begin(), objects.end(), [](const CocoAnnotation& each) { return !each.crowd; });
}

RunLength CocoObjects::mask(const CocoAnnotation& annotation, std::uint32_t height, std::uint32_t width) const {
  if (annotation.kind == CocoShape::run_length) {
    const RunLengthView runs = shapes.run_length(annotation.shape);
    return {.height = runs.height, .width = runs.width, .counts = {runs.counts.begin(), runs.counts.end()}};
  }
  if (annotation.kind == CocoShape::none) return empty_mask(height, width);
  std::vector<RunLength> masks;
  masks.reserve(annotation.polygons);
  for (std::uint64_t number = 0; number < annotation.polygons; ++number) {
    masks.push_back(detail::polygon_mask(shapes.polygon(annotation.shape + number), height, width));
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
    if (annotations.objects.has_object(image)) ids.push_back(annotations.images[image].id);
  }
  return ids;
}

CocoAnnotations read_coco(const File& file, const CocoOptions& options) {
  detail::CocoReader reader{detail::CocoFile::instances, options, expected_coordinates(file)};
  CocoAnnotations& found = reader.found();
  read_json_file(file, reader, [&](const simdjson::padded_string& json) {
    read_sections(json, reader);
    sort_by_id(found);
    reader.check_ids();
    reader.link(found);
  });
  report(file.name(), found.findings, "annotations");
  return std::move(found);
}

CocoObjects read_coco_results(const File& file, const CocoAnnotations& truth, const CocoOptions& options) {
  detail::CocoReader reader{detail::CocoFile::results, options, expected_coordinates(file)};
  CocoAnnotations& found = reader.found();
  read_json_file(file, reader, [&](const simdjson::padded_string& json) {
    require_brackets(json, '[', ']', "'[' of a results file");
    detail::parse_json(json, [&](ondemand::document& document) {
      ondemand::array array;
      if (document.get_array().get(array) != simdjson::SUCCESS) throw detail::JsonFault{.expected = "an array"};
      detail::for_each_json_element(array, "results", [&](ondemand::value& each) { reader.read_annotation(each); });
    });
    reader.link(truth);
  });
  const std::uint64_t strangers = found.findings.unknown_images;
  if (strangers > 0 && found.objects.annotations.empty() && found.findings.unknown_categories == 0) {
    throw EnvironmentError(text("COCO file '", file.name(), "': none of its ", strangers,
                                " results is of an image that the annotation file lists. Give the results and the "
                                "annotations of the same images."));
  }
  report(file.name(), found.findings, "results");
  return std::move(found.objects);
}

}  // namespace libtrain::data
