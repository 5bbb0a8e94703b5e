#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <simdjson.h>

#include <libtrain/data/formats/coco.hpp>
#include <libtrain/data/formats/coco_annotations.hpp>
#include <libtrain/data/formats/coco_id_table.hpp>

namespace libtrain::data::detail {

/// What an annotation says of other sections of its file, which may come later, and where it stands.
struct CocoReference {
  std::int64_t image_id = 0;
  std::int64_t category_id = 0;
  std::uint64_t offset = 0;
};

enum class CocoFile { instances, results };

/// Reads the objects of a file's sections one by one. Each function throws JsonFault, with nothing of the object kept.
class CocoReader {
 public:
  /// `expected_coordinates` is how many there may be: room for them is set aside, not used.
  CocoReader(CocoFile file, CocoUse use, std::uint64_t expected_coordinates);

  void read_image(simdjson::ondemand::object& object);
  void read_category(simdjson::ondemand::object& object);
  void read_annotation(simdjson::ondemand::object& object, std::uint64_t offset);

  /// Images and categories in the order of the file, annotations too, without their positions among those.
  CocoAnnotations& found() { return found_; }

  /// One for each annotation.
  const std::vector<CocoReference>& references() const { return references_; }

 private:
  // An annotation and what its object had.
  struct Entry {
    CocoAnnotation annotation = {};
    CocoReference reference = {};
    std::uint32_t listed_polygons = 0;
    bool has_id = false;
    bool has_image = false;
    bool has_category = false;
    bool has_box = false;
    bool has_area = false;
    bool has_score = false;
  };

  // How much there was of each kind of mask.
  struct Marks {
    std::size_t coordinates = 0;
    std::size_t polygon_offsets = 0;
    std::size_t counts = 0;
    std::size_t masks = 0;
  };

  void complete(Entry& entry);
  bool is_kept(const Entry& entry);

  // coco_segmentation.cpp
  void read_segmentation(simdjson::ondemand::value& value, Entry& entry);
  void read_polygons(std::string_view json, Entry& entry);
  void read_run_length(simdjson::ondemand::value& value, Entry& entry);
  void append_counts(std::string_view array, std::uint64_t pixels);
  const std::vector<double>& numbers_of(std::string_view array);

  Marks mark() const;
  void roll_back(const Marks& marks);

  CocoFile file_;
  CocoUse use_;
  CocoAnnotations found_;
  std::vector<CocoReference> references_;
  CocoIdTable image_ids_;
  CocoIdTable category_ids_;
  std::vector<double> numbers_;
};

}  // namespace libtrain::data::detail
