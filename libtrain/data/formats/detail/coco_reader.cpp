#include <libtrain/data/formats/detail/coco_reader.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/json.hpp>

namespace libtrain::data::detail {

namespace {

namespace ondemand = simdjson::ondemand;

constexpr std::int64_t kLongestSide = 1'000'000;

void require_key(bool present, std::string_view key, const char* begin) {
  if (!present) throw JsonFault{begin, text("an object with the key '", key, "'")};
}

std::int32_t side_of(ondemand::value& value, std::string_view key) {
  return static_cast<std::int32_t>(json_integer(value, key, 1, kLongestSide));
}

constexpr std::size_t kMinCoordinates = 6;
constexpr auto kMaxImagePixels = static_cast<double>(kMaxMaskPixels);

bool is_whole(double number, double least, double most) {
  return number >= least && number <= most && std::floor(number) == number;
}

// The elements of an array of numbers.
std::vector<double> numbers_of(ondemand::value& value, std::string_view name) {
  std::vector<double> numbers;
  for_each_json_element(json_array(value, name), name,
                        [&](ondemand::value& each) { numbers.push_back(json_number(each, name)); });
  return numbers;
}

template <typename Records>
CocoIdTable positions_of(const Records& records) {
  CocoIdTable table{records.size()};
  std::uint32_t position = 0;
  for (const auto& record : records) table.insert(record.id, position++);
  return table;
}

// The `id` of an annotation, which may follow after a fault; std::nullopt if there is none, or it cannot be read.
std::optional<std::int64_t> id_of(ondemand::object object) {
  std::int64_t id = 0;
  if (object.find_field_unordered("id").get_int64().get(id) != simdjson::SUCCESS) return std::nullopt;
  return id;
}

}  // namespace

CocoReader::CocoReader(CocoFile file, const CocoOptions& options, std::uint64_t expected_coordinates)
    : file_(file), options_(options) {
  found_.objects.shapes.coordinates.reserve(expected_coordinates);
}

void CocoReader::read_image(ondemand::value& value) {
  const char* const begin = json_begin(value);
  auto object = json_object(value, "images");
  CocoImage image;
  std::string_view name;
  bool has_id = false;
  bool has_name = false;
  for_each_json_field(object, [&](std::string_view key, ondemand::value& field) {
    if (key == "id") {
      image.id = json_integer(field, key);
      has_id = true;
    } else if (key == "width") {
      image.width = side_of(field, key);
    } else if (key == "height") {
      image.height = side_of(field, key);
    } else if (key == "file_name") {
      name = json_string(field, key);
      has_name = true;
    }
  });
  require_key(has_id, "id", begin);
  require_key(image.width > 0, "width", begin);
  require_key(image.height > 0, "height", begin);
  require_key(has_name, "file_name", begin);
  if (!image_ids_.insert(image.id, 0)) throw JsonFault{begin, text("a unique image id, not a second ", image.id)};
  image.name_offset = found_.names.size();
  image.name_length = name.size();
  found_.names += name;
  found_.images.push_back(image);
}

void CocoReader::read_category(ondemand::value& value) {
  const char* const begin = json_begin(value);
  auto object = json_object(value, "categories");
  CocoCategory category;
  bool has_id = false;
  bool has_name = false;
  for_each_json_field(object, [&](std::string_view key, ondemand::value& field) {
    if (key == "id") {
      category.id = json_integer(field, key);
      has_id = true;
    } else if (key == "name") {
      category.name = json_string(field, key);
      has_name = true;
    } else if (key == "supercategory" && *json_begin(field) == '"') {
      category.supercategory = json_string(field, key);
    }
  });
  require_key(has_id, "id", begin);
  require_key(has_name, "name", begin);
  if (!category_ids_.insert(category.id, 0)) {
    throw JsonFault{begin, text("a unique category id, not a second ", category.id)};
  }
  found_.categories.push_back(std::move(category));
}

void CocoReader::read_annotation(ondemand::value& value) {
  const Marks marks = mark();
  Entry entry{.reference = {.at = json_begin(value)}};
  if (file_ == CocoFile::results) entry.annotation.id = ++results_;
  std::optional<ondemand::object> object;
  try {
    object = json_object(value, "annotations");
    read_members(*object, entry);
    complete(entry);
  } catch (JsonFault& fault) {
    if (fault.at == nullptr) throw;  // not well-formed
    if (file_ == CocoFile::results) {
      fault.record = text("result ", results_);
    } else if (object && object->reset().error() == simdjson::SUCCESS) {
      if (const auto id = id_of(*object)) fault.record = text("annotation ", *id);
    }
    if (options_.malformed == CocoMalformed::refuse) throw;
    // The parser goes on after the object if it stands within.
    if (object && object->reset().error() != simdjson::SUCCESS) throw;
    roll_back(marks);
    leave_out(fault);
    return;
  }
  if (!is_kept(entry)) {
    roll_back(marks);
    return;
  }
  found_.objects.annotations.push_back(entry.annotation);
  references_.push_back(entry.reference);
}

void CocoReader::read_members(ondemand::object& object, Entry& entry) {
  auto& annotation = entry.annotation;
  for_each_json_field(object, [&](std::string_view key, ondemand::value& field) {
    if (key == "segmentation") {
      read_segmentation(field, entry);
    } else if (key == "bbox") {
      const char* const box_begin = json_begin(field);
      const auto box = numbers_of(field, key);
      if (box.empty() && file_ == CocoFile::results) return;
      if (box.size() != 4) throw JsonFault{box_begin, "four numbers for 'bbox'"};
      annotation.box = {.x = box[0], .y = box[1], .width = box[2], .height = box[3]};
      entry.has_box = true;
    } else if (key == "area") {
      annotation.area = json_number(field, key);
      entry.has_area = true;
    } else if (key == "iscrowd") {
      annotation.crowd = json_flag(field, key);
    } else if (key == "image_id") {
      entry.reference.image_id = json_integer(field, key);
      entry.has_image = true;
    } else if (key == "category_id") {
      entry.reference.category_id = json_integer(field, key);
      entry.has_category = true;
    } else if (key == "id" && file_ == CocoFile::instances) {
      annotation.id = json_integer(field, key);
      entry.has_id = true;
    } else if (key == "score" && file_ == CocoFile::results) {
      annotation.score = json_number(field, key);
      entry.has_score = true;
    }
  });
}

void CocoReader::complete(Entry& entry) {
  const char* const begin = entry.reference.at;
  require_key(entry.has_image, "image_id", begin);
  require_key(entry.has_category, "category_id", begin);
  if (file_ == CocoFile::results) return complete_result(entry);
  require_key(entry.has_id, "id", begin);
  require_key(entry.has_box, "bbox", begin);
  if (!entry.has_area) entry.annotation.area = entry.annotation.box.width * entry.annotation.box.height;
}

void CocoReader::complete_result(Entry& entry) {
  auto& annotation = entry.annotation;
  require_key(entry.has_score, "score", entry.reference.at);
  annotation.crowd = false;
  const bool has_mask = annotation.kind == CocoShape::run_length;
  if (!entry.has_box && !has_mask) {
    throw JsonFault{entry.reference.at, "an object with the key 'bbox', or a run-length mask as 'segmentation'"};
  }
  if (!results_have_boxes_) results_have_boxes_ = entry.has_box;
  annotation.area = annotation.box.width * annotation.box.height;
  if (!has_mask || (entry.has_box && *results_have_boxes_)) return;
  const RunLengthView runs = found_.objects.shapes.run_length(annotation.shape);
  annotation.area = static_cast<double>(mask_area(runs));
  if (!entry.has_box) annotation.box = mask_box(runs);
}

void CocoReader::leave_out(const JsonFault& fault) {
  if (found_.findings.malformed == 0) first_malformed_ = fault;
  ++found_.findings.malformed;
}

bool CocoReader::is_kept(const Entry& entry) {
  const auto& annotation = entry.annotation;
  const bool training = options_.use == CocoUse::training && file_ == CocoFile::instances;
  found_.findings.polygons += entry.listed_polygons - annotation.polygons;
  if (training && (annotation.box.width <= 0 || annotation.box.height <= 0)) {
    ++found_.findings.degenerate_boxes;
    return false;
  }
  if (training && entry.listed_polygons > 0 && annotation.polygons == 0) {
    ++found_.findings.without_polygon;
    return false;
  }
  return true;
}

CocoReader::Marks CocoReader::mark() const {
  const auto& shapes = found_.objects.shapes;
  return {.coordinates = shapes.coordinates.size(),
          .polygon_offsets = shapes.polygon_offsets.size(),
          .counts = shapes.counts.size(),
          .masks = shapes.masks.size()};
}

void CocoReader::roll_back(const Marks& marks) {
  auto& shapes = found_.objects.shapes;
  shapes.coordinates.resize(marks.coordinates);
  shapes.polygon_offsets.resize(marks.polygon_offsets);
  shapes.counts.resize(marks.counts);
  shapes.masks.resize(marks.masks);
}

void CocoReader::read_segmentation(ondemand::value& value, Entry& entry) {
  entry.listed_polygons = 0;
  entry.annotation.polygons = 0;
  entry.annotation.kind = CocoShape::none;
  const char* const begin = json_begin(value);
  if (*begin == '[') {
    read_polygons(value, entry);
  } else if (*begin == '{') {
    read_run_length(value, entry);
  } else {
    bool is_null = false;
    if (value.is_null().get(is_null) != simdjson::SUCCESS || !is_null) {
      throw JsonFault{begin, "polygons or a run-length mask for 'segmentation'"};
    }
  }
}

void CocoReader::read_polygons(ondemand::value& value, Entry& entry) {
  auto& shapes = found_.objects.shapes;
  entry.annotation.shape = shapes.polygon_offsets.size() - 1;
  for_each_json_element(json_array(value, "segmentation"), "segmentation", [&](ondemand::value& polygon) {
    const std::size_t first = shapes.coordinates.size();
    for_each_json_element(json_array(polygon, "a polygon"), "a polygon", [&](ondemand::value& coordinate) {
      shapes.coordinates.push_back(json_number(coordinate, "a polygon"));
    });
    const std::size_t count = shapes.coordinates.size() - first;
    ++entry.listed_polygons;
    if (count >= kMinCoordinates && count % 2 == 0) {
      shapes.polygon_offsets.push_back(shapes.coordinates.size());
      ++entry.annotation.polygons;
    } else {
      shapes.coordinates.resize(first);
    }
  });
  if (entry.annotation.polygons > 0) entry.annotation.kind = CocoShape::polygons;
}

void CocoReader::read_run_length(ondemand::value& value, Entry& entry) {
  auto& shapes = found_.objects.shapes;
  const char* const begin = json_begin(value);
  CocoShapes::Mask mask{.first_count = shapes.counts.size()};
  std::string_view string;
  std::vector<double> numbers;
  const char* counts_begin = nullptr;
  bool is_array = false;
  auto object = json_object(value, "segmentation");
  for_each_json_field(object, [&](std::string_view key, ondemand::value& field) {
    if (key == "size") {
      const char* const size_begin = json_begin(field);
      const auto size = numbers_of(field, key);
      const bool usable = size.size() == 2 && is_whole(size[0], 1, kMaxImagePixels) &&
                          is_whole(size[1], 1, kMaxImagePixels) && size[0] * size[1] <= kMaxImagePixels;
      if (!usable) throw JsonFault{size_begin, text("a height and a width of up to ", kMaxMaskPixels, " pixels")};
      mask.height = static_cast<std::uint32_t>(size[0]);
      mask.width = static_cast<std::uint32_t>(size[1]);
    } else if (key == "counts") {
      counts_begin = json_begin(field);
      is_array = *counts_begin == '[';
      if (is_array) {
        numbers = numbers_of(field, key);
      } else {
        string = json_string(field, key);
      }
    }
  });
  if (mask.height == 0 || counts_begin == nullptr) {
    throw JsonFault{begin, "an object with the keys 'size' and 'counts'"};
  }
  const std::uint64_t pixels = std::uint64_t{mask.height} * mask.width;
  if (is_array) {
    append_counts(numbers, pixels, counts_begin);
  } else if (const auto fault = append_coco_counts(string, pixels, shapes.counts)) {
    throw JsonFault{begin, text("a run-length mask of ", mask.height, " x ", mask.width, " (", *fault, ")")};
  }
  mask.counts = shapes.counts.size() - mask.first_count;
  entry.annotation.kind = CocoShape::run_length;
  entry.annotation.shape = shapes.masks.size();
  shapes.masks.push_back(mask);
}

void CocoReader::append_counts(const std::vector<double>& counts, std::uint64_t pixels, const char* begin) {
  std::uint64_t left = pixels;
  for (const double count : counts) {
    if (!is_whole(count, 0, static_cast<double>(left))) {
      throw JsonFault{begin, text("counts that add up to ", pixels, ", not the count ", count)};
    }
    left -= static_cast<std::uint64_t>(count);
    found_.objects.shapes.counts.push_back(static_cast<std::uint32_t>(count));
  }
  if (left > 0) throw JsonFault{begin, text("counts that add up to ", pixels, ", not to ", pixels - left)};
}

void CocoReader::check_ids() {
  auto& annotations = found_.objects.annotations;
  CocoIdTable ids{annotations.size()};
  for (std::size_t number = annotations.size(); number-- > 0;) {
    if (annotations[number].id <= 0) ++found_.findings.ids_not_positive;
    if (ids.insert(annotations[number].id, static_cast<std::uint32_t>(number))) continue;
    ++found_.findings.duplicate_ids;
    if (options_.use == CocoUse::training) continue;
    const std::uint32_t last = *ids.find(annotations[number].id);
    annotations[number] = annotations[last];
    references_[number] = references_[last];
  }
}

void CocoReader::link(const CocoAnnotations& truth) {
  const CocoIdTable images = positions_of(truth.images);
  const CocoIdTable categories = positions_of(truth.categories);
  for (std::size_t number = 0; number < references_.size(); ++number) {
    const CocoReference& reference = references_[number];
    CocoAnnotation& annotation = found_.objects.annotations[number];
    annotation.image = kNoCocoImage;
    const auto image = images.find(reference.image_id);
    if (!image) {
      ++found_.findings.unknown_images;
      continue;
    }
    const auto category = categories.find(reference.category_id);
    if (category) {
      annotation.image = *image;
      annotation.category = *category;
    } else if (file_ == CocoFile::results) {
      ++found_.findings.unknown_categories;
    } else {
      JsonFault fault{.at = reference.at,
                      .expected = text("an object of a known category, not of ", reference.category_id),
                      .record = text("annotation ", annotation.id)};
      if (options_.malformed == CocoMalformed::refuse) throw fault;
      leave_out(fault);
    }
  }
  group_coco_objects(found_.objects, truth.images.size());
}

void group_coco_objects(CocoObjects& objects, std::size_t images) {
  auto& first = objects.first_of_image;
  first.assign(images + 1, 0);
  for (const auto& annotation : objects.annotations) {
    if (annotation.image != kNoCocoImage) ++first[annotation.image + std::size_t{1}];
  }
  for (std::size_t image = 0; image < images; ++image) first[image + 1] += first[image];
  std::vector<CocoAnnotation> grouped(first[images]);
  std::vector<std::uint64_t> next(first.begin(), first.end());
  for (const auto& annotation : objects.annotations) {
    if (annotation.image != kNoCocoImage) grouped[next[annotation.image]++] = annotation;
  }
  objects.annotations = std::move(grouped);
}

}  // namespace libtrain::data::detail
