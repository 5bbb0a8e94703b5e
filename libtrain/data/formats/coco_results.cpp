#include <libtrain/data/formats/coco_results.hpp>

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <utility>

#include <libtrain/base/detail/little_endian.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/output_file.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/coco_reader.hpp>

namespace libtrain::data {

namespace {

using libtrain::detail::append_little_endian;

void append_double(std::string& bytes, double number) {
  append_little_endian(bytes, std::bit_cast<std::uint64_t>(number));
}

/// Reads what pack_coco_results() has written.
class ResultBytes {
 public:
  explicit ResultBytes(std::string_view bytes) : left_(bytes) {}

  bool empty() const { return left_.empty(); }

  std::string_view take(std::size_t length) {
    if (length > left_.size()) fail();
    const std::string_view taken = left_.substr(0, length);
    left_.remove_prefix(length);
    return taken;
  }

  template <std::unsigned_integral Number>
  Number take_number() {
    return libtrain::detail::load_little_endian<Number>(take(sizeof(Number)).data());
  }

  double take_double() { return std::bit_cast<double>(take_number<std::uint64_t>()); }

  [[noreturn]] static void fail() {
    throw CommunicationError(
        "A rank sent detections that cannot be read. Run the same build of libtrain on every rank.");
  }

 private:
  std::string_view left_;
};

RunLength take_mask(ResultBytes& bytes, std::uint32_t height) {
  const auto width = bytes.take_number<std::uint32_t>();
  const std::string_view encoded = bytes.take(bytes.take_number<std::uint32_t>());
  try {
    return from_coco_string(encoded, height, width);
  } catch (const Error&) {
    ResultBytes::fail();
  }
}

// "result 3 (image 17)", for errors.
std::string name_of(std::size_t number, const CocoResult& result) {
  return text("Result ", number + 1, " (image ", result.image_id, ", category ", result.category_id, ")");
}

void require_finite(std::size_t number, const CocoResult& result) {
  const auto& box = result.box;
  for (const double each : {result.score, box.x, box.y, box.width, box.height}) {
    if (std::isfinite(each)) continue;
    throw UsageError(text(name_of(number, result), " has the score ", result.score, " and the box ", box.x, ", ", box.y,
                          ", ", box.width, ", ", box.height, "; expected finite numbers."));
  }
}

// The mask, if there is one; its runs add up to its size.
const RunLength* checked_mask(std::size_t number, const CocoResult& result) {
  if (!result.mask) return nullptr;
  const RunLength& mask = *result.mask;
  std::uint64_t covered = 0;
  for (const auto run : mask.counts) covered += run;
  const std::uint64_t pixels = std::uint64_t{mask.height} * mask.width;
  if (covered == pixels && 0 < pixels && pixels <= kMaxMaskPixels) return &mask;
  throw UsageError(text(name_of(number, result), " has a mask of ", mask.height, " x ", mask.width,
                        " whose runs add up to ", covered, " pixels; expected ", pixels, ", from 1 to ", kMaxMaskPixels,
                        "."));
}

const RunLength& require_mask(std::size_t number, const CocoResult& result) {
  const RunLength* const mask = checked_mask(number, result);
  if (mask == nullptr) throw UsageError(text(name_of(number, result), " has no mask."));
  return *mask;
}

const RunLength& require_mask(std::size_t number, const CocoResult& result, const CocoImage& image) {
  const RunLength& mask = require_mask(number, result);
  if (std::cmp_equal(mask.height, image.height) && std::cmp_equal(mask.width, image.width)) return mask;
  throw UsageError(text(name_of(number, result), " has a mask of ", mask.height, " x ", mask.width,
                        ", but its image has ", image.height, " x ", image.width, " pixels."));
}

void append_mask(CocoObjects& objects, CocoAnnotation& annotation, const RunLength& mask) {
  auto& shapes = objects.shapes;
  annotation.kind = CocoShape::run_length;
  annotation.shape = shapes.masks.size();
  annotation.area = static_cast<double>(mask_area(mask));
  shapes.masks.push_back(
      {.first_count = shapes.counts.size(), .counts = mask.counts.size(), .height = mask.height, .width = mask.width});
  shapes.counts.insert(shapes.counts.end(), mask.counts.begin(), mask.counts.end());
}

template <typename Number>
void append_json(std::string& json, Number number) {
  std::array<char, 32> digits;
  json.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

void append_json(std::string& json, const BoundingBox& box) {
  json += ",\"bbox\":[";
  append_json(json, box.x);
  for (const double each : {box.y, box.width, box.height}) {
    json += ',';
    append_json(json, each);
  }
  json += ']';
}

// The characters of the string form are '0' to 'o': of these JSON escapes the backslash alone.
void append_json(std::string& json, const RunLength& mask) {
  json += ",\"segmentation\":{\"size\":[";
  append_json(json, mask.height);
  json += ',';
  append_json(json, mask.width);
  json += "],\"counts\":\"";
  for (const char character : to_coco_string(mask)) {
    if (character == '\\') json += '\\';
    json += character;
  }
  json += "\"}";
}

std::string json_of(std::size_t number, const CocoResult& result, CocoResultKeys keys) {
  require_finite(number, result);
  std::string json = "{\"image_id\":";
  append_json(json, result.image_id);
  json += ",\"category_id\":";
  append_json(json, result.category_id);
  if (keys != CocoResultKeys::segmentation) append_json(json, result.box);
  json += ",\"score\":";
  append_json(json, result.score);
  const RunLength* const mask = checked_mask(number, result);
  if (keys == CocoResultKeys::segmentation) require_mask(number, result);
  if (keys != CocoResultKeys::bbox && mask != nullptr) append_json(json, *mask);
  json += '}';
  return json;
}

}  // namespace

std::string pack_coco_results(std::span<const CocoResult> results) {
  std::string bytes;
  for (std::size_t number = 0; number < results.size(); ++number) {
    const CocoResult& result = results[number];
    append_little_endian(bytes, static_cast<std::uint64_t>(result.image_id));
    append_little_endian(bytes, static_cast<std::uint64_t>(result.category_id));
    append_double(bytes, result.score);
    for (const double each : {result.box.x, result.box.y, result.box.width, result.box.height}) {
      append_double(bytes, each);
    }
    const RunLength* const mask = checked_mask(number, result);
    append_little_endian(bytes, mask != nullptr ? mask->height : 0);
    if (mask == nullptr) continue;
    const std::string encoded = to_coco_string(*mask);
    append_little_endian(bytes, mask->width);
    append_little_endian(bytes, static_cast<std::uint32_t>(encoded.size()));
    bytes += encoded;
  }
  return bytes;
}

std::vector<CocoResult> unpack_coco_results(std::string_view packed) {
  std::vector<CocoResult> results;
  for (ResultBytes bytes{packed}; !bytes.empty();) {
    CocoResult& result = results.emplace_back();
    result.image_id = static_cast<std::int64_t>(bytes.take_number<std::uint64_t>());
    result.category_id = static_cast<std::int64_t>(bytes.take_number<std::uint64_t>());
    result.score = bytes.take_double();
    for (double* each : {&result.box.x, &result.box.y, &result.box.width, &result.box.height}) {
      *each = bytes.take_double();
    }
    const auto height = bytes.take_number<std::uint32_t>();
    if (height > 0) result.mask = take_mask(bytes, height);
  }
  return results;
}

CocoObjects link_coco_results(std::span<const CocoResult> results, const CocoAnnotations& truth, CocoIouType type) {
  CocoObjects objects;
  objects.annotations.reserve(results.size());
  for (std::size_t number = 0; number < results.size(); ++number) {
    const CocoResult& result = results[number];
    require_finite(number, result);
    const auto image = truth.find_image(result.image_id);
    if (!image) throw UsageError(text(name_of(number, result), " is not of an image of the annotation file."));
    const auto category = truth.find_category(result.category_id);
    if (!category) continue;
    CocoAnnotation annotation{.id = static_cast<std::int64_t>(number) + 1,
                              .box = result.box,
                              .area = result.box.width * result.box.height,
                              .score = result.score,
                              .image = static_cast<std::uint32_t>(*image),
                              .category = static_cast<std::uint32_t>(*category)};
    if (type == CocoIouType::masks) {
      append_mask(objects, annotation, require_mask(number, result, truth.images[*image]));
    }
    objects.annotations.push_back(annotation);
  }
  detail::group_coco_objects(objects, truth.images.size());
  return objects;
}

void write_coco_results(const std::string& path, std::span<const CocoResult> results, CocoResultKeys keys) {
  libtrain::detail::OutputFile file{path};
  file.write("[");
  for (std::size_t number = 0; number < results.size(); ++number) {
    if (number > 0) file.write(",\n");
    file.write(json_of(number, results[number], keys));
  }
  file.write("]\n");
  file.commit();
}

}  // namespace libtrain::data
