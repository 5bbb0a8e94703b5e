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

void require_key(bool present, std::string_view key) {
  if (!present) throw data_fault(text("an object with the key '", key, "'"));
}

std::int32_t side_of(ondemand::value& value, std::string_view key) {
  return static_cast<std::int32_t>(json_integer(value, key, 1, kLongestSide));
}

constexpr std::size_t kFewestCoordinates = 6;
constexpr auto kMostPixels = static_cast<double>(kMostMaskPixels);

bool is_whole(double number, double least, double most) {
  return number >= least && number <= most && std::floor(number) == number;
}

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

CocoReader::CocoReader(CocoFile file, CocoUse use, std::uint64_t expected_coordinates) : file_(file), use_(use) {
  found_.objects.shapes.coordinates.reserve(expected_coordinates);
}

void CocoReader::read_image(ondemand::object& object) {
  CocoImage image;
  std::string_view name;
  bool has_id = false;
  bool has_name = false;
  for_each_json_field(object, [&](std::string_view key, ondemand::value& value) {
    if (key == "id") {
      image.id = json_integer(value, key);
      has_id = true;
    } else if (key == "width") {
      image.width = side_of(value, key);
    } else if (key == "height") {
      image.height = side_of(value, key);
    } else if (key == "file_name") {
      name = json_string(value, key);
      has_name = true;
    }
  });
  require_key(has_id, "id");
  require_key(image.width > 0, "width");
  require_key(image.height > 0, "height");
  require_key(has_name, "file_name");
  if (!image_ids_.insert(image.id, 0)) throw data_fault(text("an image whose id no other has, unlike ", image.id));
  image.name_offset = found_.names.size();
  image.name_length = name.size();
  found_.names += name;
  found_.images.push_back(image);
}

void CocoReader::read_category(ondemand::object& object) {
  CocoCategory category;
  bool has_id = false;
  bool has_name = false;
  for_each_json_field(object, [&](std::string_view key, ondemand::value& value) {
    if (key == "id") {
      category.id = json_integer(value, key);
      has_id = true;
    } else if (key == "name") {
      category.name = json_string(value, key);
      has_name = true;
    } else if (key == "supercategory" && *json_begin(value) == '"') {
      category.supercategory = json_string(value, key);
    }
  });
  require_key(has_id, "id");
  require_key(has_name, "name");
  if (!category_ids_.insert(category.id, 0)) {
    throw data_fault(text("a category whose id no other has, unlike ", category.id));
  }
  found_.categories.push_back(std::move(category));
}

void CocoReader::read_annotation(ondemand::object& object, std::uint64_t offset) {
  const Marks marks = mark();
  Entry entry{.reference = {.offset = offset}};
  auto& annotation = entry.annotation;
  try {
    for_each_json_field(object, [&](std::string_view key, ondemand::value& value) {
      if (key == "segmentation") {
        read_segmentation(value, entry);
      } else if (key == "bbox") {
        const char* const begin = json_begin(value);
        const auto& box = numbers_of(json_array_text(value, key));
        if (box.size() != 4) throw data_fault("four numbers for 'bbox'", begin);
        annotation.box = {.x = box[0], .y = box[1], .width = box[2], .height = box[3]};
        entry.has_box = true;
      } else if (key == "area") {
        annotation.area = json_number(value, key);
        entry.has_area = true;
      } else if (key == "iscrowd") {
        annotation.crowd = json_flag(value, key);
      } else if (key == "image_id") {
        entry.reference.image_id = json_integer(value, key);
        entry.has_image = true;
      } else if (key == "category_id") {
        entry.reference.category_id = json_integer(value, key);
        entry.has_category = true;
      } else if (key == "id" && file_ == CocoFile::instances) {
        annotation.id = json_integer(value, key);
        entry.has_id = true;
      } else if (key == "score" && file_ == CocoFile::results) {
        annotation.score = json_number(value, key);
        entry.has_score = true;
      }
    });
    complete(entry);
  } catch (...) {
    roll_back(marks);
    throw;
  }
  if (!is_kept(entry)) {
    roll_back(marks);
    return;
  }
  found_.objects.annotations.push_back(annotation);
  references_.push_back(entry.reference);
}

void CocoReader::complete(Entry& entry) {
  auto& annotation = entry.annotation;
  require_key(entry.has_image, "image_id");
  require_key(entry.has_category, "category_id");
  const bool results = file_ == CocoFile::results;
  if (results) {
    require_key(entry.has_score, "score");
    annotation.id = static_cast<std::int64_t>(found_.objects.annotations.size()) + 1;
    annotation.crowd = false;
    if (!entry.has_box && annotation.kind == CocoShape::run_length) {
      const RunLengthView runs = found_.objects.shapes.run_length(annotation.shape);
      annotation.box = mask_box(runs);
      annotation.area = static_cast<double>(mask_area(runs));
      return;
    }
  } else {
    require_key(entry.has_id, "id");
  }
  require_key(entry.has_box, "bbox");
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
    read_polygons(json_array_text(value, "segmentation"), entry);
  } else if (*begin == '{') {
    read_run_length(value, entry);
  } else {
    bool is_null = false;
    if (value.is_null().get(is_null) != simdjson::SUCCESS || !is_null) {
      throw data_fault("polygons or a run-length mask for 'segmentation'", begin);
    }
  }
}

void CocoReader::read_polygons(std::string_view json, Entry& entry) {
  auto& shapes = found_.objects.shapes;
  const char* const end = json.data() + json.size();
  const char* at = skip_json_space(json.data() + 1, end);
  entry.annotation.shape = shapes.polygon_offsets.size() - 1;
  bool more = !(at < end && *at == ']');
  while (more) {
    const std::size_t first = shapes.coordinates.size();
    at = skip_json_space(append_json_numbers(at, end, shapes.coordinates), end);
    const std::size_t count = shapes.coordinates.size() - first;
    ++entry.listed_polygons;
    if (count >= kFewestCoordinates && count % 2 == 0) {
      shapes.polygon_offsets.push_back(shapes.coordinates.size());
      ++entry.annotation.polygons;
    } else {
      shapes.coordinates.resize(first);
    }
    more = at < end && *at == ',';
    if (more) at = skip_json_space(at + 1, end);
  }
  if (at == end || *at != ']' || skip_json_space(at + 1, end) != end) {
    throw data_fault("',' or ']' behind a polygon", at);
  }
  if (entry.annotation.polygons > 0) entry.annotation.kind = CocoShape::polygons;
}

void CocoReader::read_run_length(ondemand::value& value, Entry& entry) {
  auto& shapes = found_.objects.shapes;
  const char* const begin = json_begin(value);
  CocoShapes::Mask mask{.first_count = shapes.counts.size()};
  std::string_view string;
  std::string_view array;
  bool has_counts = false;
  auto object = json_object(value, "segmentation");
  for_each_json_field(object, [&](std::string_view key, ondemand::value& field) {
    if (key == "size") {
      const char* const size_begin = json_begin(field);
      const auto& size = numbers_of(json_array_text(field, key));
      const bool usable = size.size() == 2 && is_whole(size[0], 1, kMostPixels) && is_whole(size[1], 1, kMostPixels) &&
                          size[0] * size[1] <= kMostPixels;
      if (!usable) throw data_fault(text("a height and a width of up to ", kMostMaskPixels, " pixels"), size_begin);
      mask.height = static_cast<std::uint32_t>(size[0]);
      mask.width = static_cast<std::uint32_t>(size[1]);
    } else if (key == "counts") {
      const bool is_array = *json_begin(field) == '[';
      array = is_array ? json_array_text(field, key) : std::string_view{};
      string = is_array ? std::string_view{} : json_string(field, key);
      has_counts = true;
    }
  });
  if (mask.height == 0 || !has_counts) throw data_fault("an object with the keys 'size' and 'counts'", begin);
  const std::uint64_t pixels = std::uint64_t{mask.height} * mask.width;
  if (!array.empty()) {
    append_counts(array, pixels);
  } else if (const auto fault = append_coco_counts(string, pixels, shapes.counts)) {
    throw data_fault(text("a run-length mask of ", mask.height, " x ", mask.width, " (", *fault, ")"), begin);
  }
  mask.counts = shapes.counts.size() - mask.first_count;
  entry.annotation.kind = CocoShape::run_length;
  entry.annotation.shape = shapes.masks.size();
  shapes.masks.push_back(mask);
}

void CocoReader::append_counts(std::string_view array, std::uint64_t pixels) {
  std::uint64_t left = pixels;
  for (const double count : numbers_of(array)) {
    if (!is_whole(count, 0, static_cast<double>(left))) {
      throw data_fault(text("counts that add up to ", pixels, ", not the count ", count), array.data());
    }
    left -= static_cast<std::uint64_t>(count);
    found_.objects.shapes.counts.push_back(static_cast<std::uint32_t>(count));
  }
  if (left > 0) throw data_fault(text("counts that add up to ", pixels, ", not to ", pixels - left), array.data());
}

const std::vector<double>& CocoReader::numbers_of(std::string_view array) {
  numbers_.clear();
  const char* const end = array.data() + array.size();
  const char* const behind = append_json_numbers(array.data(), end, numbers_);
  if (skip_json_space(behind, end) != end) throw data_fault("nothing behind the ']' of the numbers", behind);
  return numbers_;
}

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
