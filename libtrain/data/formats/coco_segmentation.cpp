#include <cmath>
#include <string>

#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/coco_reader.hpp>
#include <libtrain/data/formats/json_fault.hpp>
#include <libtrain/data/formats/json_numbers.hpp>
#include <libtrain/data/formats/json_space.hpp>
#include <libtrain/data/formats/json_values.hpp>

namespace libtrain::data::detail {

namespace {

namespace ondemand = simdjson::ondemand;

constexpr std::size_t kFewestCoordinates = 6;
constexpr auto kMostPixels = static_cast<double>(kMostMaskPixels);

bool is_whole(double number, double least, double most) {
  return number >= least && number <= most && std::floor(number) == number;
}

}  // namespace

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

}  // namespace libtrain::data::detail
