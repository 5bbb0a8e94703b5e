#include <libtrain/data/formats/coco_reader.hpp>

#include <string>
#include <utility>

#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/json_fault.hpp>
#include <libtrain/data/formats/json_values.hpp>

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

}  // namespace libtrain::data::detail
