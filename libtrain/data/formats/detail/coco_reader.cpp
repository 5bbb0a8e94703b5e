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

constexpr std::uint32_t kNoImage = UINT32_MAX;

template <typename Records>
CocoIdTable positions_of(const Records& records) {
  CocoIdTable table{records.size()};
  std::uint32_t position = 0;
  for (const auto& record : records) table.insert(record.id, position++);
  return table;
}

// Groups annotations by image, in the order of the file, by a counting sort.
void group_by_image(CocoObjects& objects, std::size_t images) {
  auto& first = objects.first_of_image;
  first.assign(images + 1, 0);
  for (const auto& annotation : objects.annotations) {
    if (annotation.image != kNoImage) ++first[annotation.image + std::size_t{1}];
  }
  for (std::size_t image = 0; image < images; ++image) first[image + 1] += first[image];
  std::vector<CocoAnnotation> grouped(first[images]);
  std::vector<std::uint64_t> next(first.begin(), first.end());
  for (const auto& annotation : objects.annotations) {
    if (annotation.image != kNoImage) grouped[next[annotation.image]++] = annotation;
  }
  objects.annotations = std::move(grouped);
}

}  // namespace

CocoReader::CocoReader(CocoFile file, CocoUse use, std::uint64_t expected_coordinates) : file_(file), use_(use) {
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
  const char* const begin = json_begin(value);
  Entry entry{.reference = {.at = begin}};
  auto& annotation = entry.annotation;
  auto object = json_object(value, "annotations");
  for_each_json_field(object, [&](std::string_view key, ondemand::value& field) {
    if (key == "segmentation") {
      read_segmentation(field, entry);
    } else if (key == "bbox") {
      const char* const box_begin = json_begin(field);
      const auto box = numbers_of(field, key);
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
  complete(entry, begin);
  if (!is_kept(entry)) {
    roll_back(marks);
    return;
  }
  found_.objects.annotations.push_back(annotation);
  references_.push_back(entry.reference);
}

void CocoReader::complete(Entry& entry, const char* begin) {
  auto& annotation = entry.annotation;
  require_key(entry.has_image, "image_id", begin);
  require_key(entry.has_category, "category_id", begin);
  const bool results = file_ == CocoFile::results;
  if (results) {
    require_key(entry.has_score, "score", begin);
    annotation.id = static_cast<std::int64_t>(found_.objects.annotations.size()) + 1;
    annotation.crowd = false;
    if (!entry.has_box && annotation.kind == CocoShape::run_length) {
      const RunLengthView runs = found_.objects.shapes.run_length(annotation.shape);
      annotation.box = mask_box(runs);
      annotation.area = static_cast<double>(mask_area(runs));
      return;
    }
  } else {
    require_key(entry.has_id, "id", begin);
  }
  require_key(entry.has_box, "bbox", begin);
  if (results || !entry.has_area) annotation.area = annotation.box.width * annotation.box.height;
}

bool CocoReader::is_kept(const Entry& entry) {
  const auto& annotation = entry.annotation;
  const bool training = use_ == CocoUse::training && file_ == CocoFile::instances;
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

void link_coco_objects(CocoObjects& objects, const std::vector<CocoReference>& references, const CocoAnnotations& truth,
                       CocoFile file, CocoFindings& findings) {
  const CocoIdTable images = positions_of(truth.images);
  const CocoIdTable categories = positions_of(truth.categories);
  for (std::size_t number = 0; number < references.size(); ++number) {
    const CocoReference& reference = references[number];
    CocoAnnotation& annotation = objects.annotations[number];
    const auto image = images.find(reference.image_id);
    annotation.image = image.value_or(kNoImage);
    if (!image) {
      if (file == CocoFile::results) {
        throw JsonFault{reference.at, text("a result for an image of the ground truth, not for ", reference.image_id)};
      }
      ++findings.unknown_images;
      continue;
    }
    const auto category = categories.find(reference.category_id);
    if (!category) {
      throw JsonFault{reference.at, text("an object of a known category, not of ", reference.category_id)};
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
