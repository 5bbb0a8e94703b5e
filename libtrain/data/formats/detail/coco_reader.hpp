#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <simdjson.h>

#include <libtrain/base/splitmix.hpp>
#include <libtrain/data/formats/coco.hpp>
#include <libtrain/data/formats/detail/json.hpp>

namespace libtrain::data::detail {

/// A map from ids to positions: open addressing with linear probing and one allocation, several times as fast as
/// std::unordered_map for the hundreds of thousands of ids of an annotation file.
class CocoIdTable {
 public:
  explicit CocoIdTable(std::size_t expected = 0) {
    std::size_t slots = 16;
    while (slots < 2 * expected) slots *= 2;
    slots_.resize(slots);
  }

  /// Returns false, and changes nothing, if `id` exists.
  bool insert(std::int64_t id, std::uint32_t position) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[slot_of(id)];
    if (slot.used) return false;
    slot = {.id = id, .position = position, .used = true};
    ++used_;
    return true;
  }

  std::optional<std::uint32_t> find(std::int64_t id) const {
    const Slot& slot = slots_[slot_of(id)];
    if (!slot.used) return std::nullopt;
    return slot.position;
  }

 private:
  struct Slot {
    std::int64_t id = 0;
    std::uint32_t position = 0;
    bool used = false;
  };

  // The slot of `id`, or the free slot for it.
  std::size_t slot_of(std::int64_t id) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = libtrain::detail::mix_bits(static_cast<std::uint64_t>(id)) & mask;
    while (slots_[slot].used && slots_[slot].id != id) slot = (slot + 1) & mask;
    return slot;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.used) slots_[slot_of(slot.id)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

/// The references of an annotation to other sections of its file, which may follow later, and its place.
struct CocoReference {
  std::int64_t image_id = 0;
  std::int64_t category_id = 0;
  const char* at = nullptr;
};

enum class CocoFile { instances, results };

/// Reads the objects of a file's sections one by one, and then links them; all functions throw JsonFault.
class CocoReader {
 public:
  /// Reserves address space for `expected_coordinates`; memory is used only for actual coordinates.
  CocoReader(CocoFile file, const CocoOptions& options, std::uint64_t expected_coordinates);

  void read_image(simdjson::ondemand::value& value);
  void read_category(simdjson::ondemand::value& value);

  /// With CocoMalformed::leave_out, counts an annotation that is malformed instead of throwing. Faults name its id.
  void read_annotation(simdjson::ondemand::value& value);

  /// Counts ids that are not positive or not unique and, for an evaluation, replaces annotations by the last one with
  /// their id. Call it after the last annotation.
  void check_ids();

  /// Sets the positions of each annotation's image and category in `truth`, whose images and categories are sorted, and
  /// groups the annotations by image. Those of unknown images are left out and counted, as are results of unknown
  /// categories; annotations of unknown categories are malformed.
  void link(const CocoAnnotations& truth);

  /// Images, categories and annotations in the order of the file; the annotations' positions of images and categories
  /// are not set.
  CocoAnnotations& found() { return found_; }

  /// What was wrong with the first annotation that was left out as malformed.
  const std::optional<JsonFault>& first_malformed() const { return first_malformed_; }

 private:
  // An annotation and the keys of its object.
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

  // The sizes of CocoShapes before an annotation.
  struct Marks {
    std::size_t coordinates = 0;
    std::size_t polygon_offsets = 0;
    std::size_t counts = 0;
    std::size_t masks = 0;
  };

  void read_members(simdjson::ondemand::object& object, Entry& entry);
  void complete(Entry& entry);
  void complete_result(Entry& entry);
  bool is_kept(const Entry& entry);
  void leave_out(const JsonFault& fault);

  void read_segmentation(simdjson::ondemand::value& value, Entry& entry);
  void read_polygons(simdjson::ondemand::value& value, Entry& entry);
  void read_run_length(simdjson::ondemand::value& value, Entry& entry);
  void append_counts(const std::vector<double>& counts, std::uint64_t pixels, const char* begin);

  Marks mark() const;
  void roll_back(const Marks& marks);

  CocoFile file_;
  CocoOptions options_;
  CocoAnnotations found_;
  std::vector<CocoReference> references_;  // of each annotation
  std::optional<JsonFault> first_malformed_;
  std::int64_t results_ = 0;                // as many as have been read, those left out included
  std::optional<bool> results_have_boxes_;  // whether the first has one
  CocoIdTable image_ids_;
  CocoIdTable category_ids_;
};

/// CocoAnnotation::image of an annotation that group_coco_objects() leaves out.
inline constexpr std::uint32_t kNoCocoImage = UINT32_MAX;

/// Groups annotations by image, in their order, by a counting sort.
void group_coco_objects(CocoObjects& objects, std::size_t images);

}  // namespace libtrain::data::detail
