// libtrain's side of coco_peer_test.py: says what it reads in files that Python made. Texts are written as hexadecimal
// bytes ("-" for none), doubles with all their digits.
//
//   coco_program instances FILE PIXELS   images, categories, annotations; pixels of all masks to PIXELS
//   coco_program results FILE TRUTH      the same of results
//   coco_program rewrite FILE TRUTH KEYS TO   writes results again, with these keys, as ranks would that exchange them
//   coco_program iou FILE                overlaps of all masks of an image with each other
//   coco_program csv FILE SEPARATOR      fields of each row
//   coco_program lines FILE COLUMN       one field of each row

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/coco.hpp>
#include <libtrain/data/formats/coco_results.hpp>
#include <libtrain/data/formats/csv.hpp>
#include <libtrain/data/formats/json_lines.hpp>

#include <tests/data/memory_file.hpp>
#include <tests/support/run_program.hpp>

namespace lt = libtrain;
namespace data = libtrain::data;

namespace {

std::unique_ptr<const data::File> read_file(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  if (!file) throw lt::EnvironmentError(lt::text("File '", path, "' cannot be read."));
  return data::memory_file({std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}}, path);
}

std::string hexadecimal(std::string_view bytes) {
  if (bytes.empty()) return "-";
  std::string result;
  for (const char byte : bytes) {
    char digits[3] = {};
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    result += digits;
  }
  return result;
}

void print_box(const data::BoundingBox& box) {
  std::printf(" %.17g %.17g %.17g %.17g", box.x, box.y, box.width, box.height);
}

data::RunLength mask_of(const data::CocoObjects& objects, const data::CocoAnnotation& annotation,
                        const data::CocoImage& image) {
  return objects.mask(annotation, static_cast<std::uint32_t>(image.height), static_cast<std::uint32_t>(image.width));
}

void print_objects(const data::CocoObjects& objects, const data::CocoAnnotations& truth, std::FILE* pixels) {
  for (std::size_t number = 0; number < truth.images.size(); ++number) {
    const auto& image = truth.images[number];
    for (const auto& annotation : objects.of_image(number)) {
      std::printf("annotation %lld %lld %lld %d %.17g %.17g", static_cast<long long>(annotation.id),
                  static_cast<long long>(image.id), static_cast<long long>(truth.categories[annotation.category].id),
                  annotation.crowd ? 1 : 0, annotation.area, annotation.score);
      print_box(annotation.box);
      if (annotation.kind == data::CocoShape::none) {
        std::printf(" none\n");
        continue;
      }
      const auto mask = mask_of(objects, annotation, image);
      std::printf(" %s %llu", hexadecimal(data::to_coco_string(mask)).c_str(),
                  static_cast<unsigned long long>(data::mask_area(mask)));
      print_box(data::mask_box(mask));
      std::printf("\n");
      if (pixels == nullptr) continue;
      std::vector<std::uint8_t> bytes(std::size_t{mask.height} * mask.width);
      data::decode_mask(mask, bytes);
      if (std::fwrite(bytes.data(), 1, bytes.size(), pixels) != bytes.size()) {
        throw lt::EnvironmentError("The file of pixels cannot be written.");
      }
    }
  }
}

void print_instances(const std::string& path, const std::string& pixels_path) {
  const auto found = data::read_coco(*read_file(path), {.use = data::CocoUse::evaluation});
  for (const auto& image : found.images) {
    std::printf("image %lld %d %d %s\n", static_cast<long long>(image.id), image.width, image.height,
                hexadecimal(found.file_name(image)).c_str());
  }
  for (const auto& category : found.categories) {
    std::printf("category %lld %s %s\n", static_cast<long long>(category.id), hexadecimal(category.name).c_str(),
                hexadecimal(category.supercategory).c_str());
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pixels{std::fopen(pixels_path.c_str(), "wb"), &std::fclose};
  if (pixels == nullptr) throw lt::EnvironmentError(lt::text("File '", pixels_path, "' cannot be written."));
  print_objects(found.objects, found, pixels.get());
  for (const auto id : data::trainable_image_ids(found)) std::printf("trainable %lld\n", static_cast<long long>(id));
}

void print_results(const std::string& path, const std::string& truth_path) {
  const auto truth = data::read_coco(*read_file(truth_path), {.use = data::CocoUse::evaluation});
  print_objects(data::read_coco_results(*read_file(path), truth), truth, nullptr);
}

void rewrite_results(const std::string& path, const std::string& truth_path, const std::string& keys,
                     const std::string& to) {
  const auto truth = data::read_coco(*read_file(truth_path), {.use = data::CocoUse::evaluation});
  const auto found = data::read_coco_results(*read_file(path), truth);
  std::vector<data::CocoResult> results;
  for (const auto& each : found.annotations) {
    data::CocoResult& result = results.emplace_back();
    result.image_id = truth.images[each.image].id;
    result.category_id = truth.categories[each.category].id;
    result.score = each.score;
    result.box = each.box;
    if (each.kind == data::CocoShape::run_length) result.mask = mask_of(found, each, truth.images[each.image]);
  }
  results = data::unpack_coco_results(data::pack_coco_results(results));
  static const std::map<std::string, data::CocoResultKeys> kKeys{{"bbox", data::CocoResultKeys::bbox},
                                                                 {"segmentation", data::CocoResultKeys::segmentation},
                                                                 {"both", data::CocoResultKeys::both}};
  data::write_coco_results(to, results, kKeys.at(keys));
}

void print_overlaps(const std::string& path) {
  const auto found = data::read_coco(*read_file(path), {.use = data::CocoUse::evaluation});
  for (std::size_t number = 0; number < found.images.size(); ++number) {
    const auto& image = found.images[number];
    for (const auto& detection : found.objects.of_image(number)) {
      const auto detected = mask_of(found.objects, detection, image);
      for (const auto& truth : found.objects.of_image(number)) {
        const auto kind = truth.crowd ? data::GroundTruth::crowd : data::GroundTruth::object;
        std::printf("iou %lld %lld %.17g %.17g\n", static_cast<long long>(detection.id),
                    static_cast<long long>(truth.id),
                    data::mask_iou(detected, mask_of(found.objects, truth, image), kind),
                    data::box_iou(detection.box, truth.box, kind));
      }
    }
  }
}

void print_rows(const std::string& path, const std::string& separator) {
  const data::CsvFile file{read_file(path), {.separator = separator.at(0)}};
  const auto print = [](const std::vector<std::string>& fields) {
    for (const auto& field : fields) std::printf("%s ", hexadecimal(field).c_str());
    std::printf("\n");
  };
  print(file.columns());
  for (std::uint64_t row = 0; row < file.size(); ++row) print(file.row(row));
}

void print_lines(const std::string& path, const std::string& column) {
  const data::JsonLines file{read_file(path)};
  for (std::uint64_t row = 0; row < file.size(); ++row) {
    std::printf("%s\n", hexadecimal(file.field(row, column)).c_str());
  }
}

void run(const std::vector<std::string>& words) {
  const std::string& command = words.at(1);
  if (command == "instances") {
    print_instances(words.at(2), words.at(3));
  } else if (command == "results") {
    print_results(words.at(2), words.at(3));
  } else if (command == "rewrite") {
    rewrite_results(words.at(2), words.at(3), words.at(4), words.at(5));
  } else if (command == "iou") {
    print_overlaps(words.at(2));
  } else if (command == "csv") {
    print_rows(words.at(2), words.at(3));
  } else if (command == "lines") {
    print_lines(words.at(2), words.at(3));
  } else {
    throw lt::UsageError(lt::text("There is no command '", command, "'."));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return lt::test::run_program([&] { run({argv, argv + argc}); });
}
