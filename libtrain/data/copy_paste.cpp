#include <libtrain/data/copy_paste.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

constexpr double kPastedShare = 0.5;
constexpr float kSmallestPasted = 1;  // in pixels

// An object of the finished image.
struct PlacedObject {
  const DetectionTarget* target;
  std::int64_t number;  // in the target
  std::array<float, 4> box;
  float area_factor;
};

// The pixels of a mask, of images that may differ in size.
struct MaskRows {
  const std::uint8_t* first;
  std::int64_t width;

  const std::uint8_t* row(std::int64_t y) const { return first + y * width; }
};

MaskRows mask_of(const DetectionTarget& target, std::int64_t number) {
  const auto pixels = target.masks.size(1) * target.masks.size(2);
  return {target.masks.const_data_ptr<std::uint8_t>() + number * pixels, target.masks.size(2)};
}

std::array<float, 4> box_of(const DetectionTarget& target, std::int64_t number) {
  const auto* box = target.boxes.const_data_ptr<float>() + 4 * number;
  return {box[0], box[1], box[2], box[3]};
}

// Of an object: before others are pasted over it or it is cut, and after.
struct Visible {
  std::int64_t before = 0;
  std::int64_t after = 0;
  std::array<float, 4> box = {};  // of the pixels that are left

  float share() const { return static_cast<float>(after) / static_cast<float>(before); }
};

// Looks at the pixels of a mask, of which those remain for which `stays(x, y)` is true.
template <typename Stays>
Visible look_at(const MaskRows& mask, std::int64_t height, const Stays& stays) {
  Visible result;
  std::int64_t left = mask.width, top = height, right = 0, bottom = 0;
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < mask.width; ++x) {
      if (mask.row(y)[x] == 0) continue;
      ++result.before;
      if (!stays(x, y)) continue;
      ++result.after;
      left = std::min(left, x);
      top = std::min(top, y);
      right = std::max(right, x + 1);
      bottom = std::max(bottom, y + 1);
    }
  }
  result.box = {static_cast<float>(left), static_cast<float>(top), static_cast<float>(right),
                static_cast<float>(bottom)};
  return result;
}

// With memory as the loops below read it.
DetectionSample contiguous(const DetectionSample& sample) {
  auto result = sample;
  auto& target = result.target;
  for (auto* const tensor :
       {&result.image, &target.boxes, &target.labels, &target.masks, &target.crowd, &target.area}) {
    *tensor = tensor->contiguous();
  }
  if (target.masks.sizes() != at::IntArrayRef{target.labels.size(0), result.image.size(1), result.image.size(2)}) {
    throw UsageError(text("Objects are pasted by masks of the image's size, one for each label, but masks of shape ",
                          target.masks.sizes(), " came with an image of shape ", result.image.sizes(), " and ",
                          target.labels.size(0), " labels."));
  }
  return result;
}

// The chosen objects of which an image of this size has pixels.
std::vector<PlacedObject> chosen_objects(const DetectionTarget& target, std::int64_t height, std::int64_t width,
                                         SampleRandom& random) {
  std::vector<PlacedObject> chosen;
  const auto* crowd = target.crowd.const_data_ptr<bool>();
  for (std::int64_t k = 0; k < target.labels.size(0); ++k) {
    if (crowd[k] || random.uniform() >= kPastedShare) continue;
    auto box = box_of(target, k);
    box[2] = std::min(box[2], static_cast<float>(width));
    box[3] = std::min(box[3], static_cast<float>(height));
    if (box[2] - box[0] < kSmallestPasted || box[3] - box[1] < kSmallestPasted) continue;
    const auto inside = look_at(mask_of(target, k), target.masks.size(1),
                                [&](std::int64_t x, std::int64_t y) { return x < width && y < height; });
    if (inside.after == 0) continue;
    if (inside.after == inside.before) {
      chosen.push_back({&target, k, box, 1});
    } else {
      chosen.push_back({&target, k, inside.box, inside.share()});
    }
  }
  return chosen;
}

DetectionTarget joined(const std::vector<PlacedObject>& objects, std::int64_t height, std::int64_t width) {
  const auto count = std::ssize(objects);
  DetectionTarget result{.boxes = at::empty({count, 4}, at::kFloat),
                         .labels = at::empty({count}, at::kLong),
                         .masks = at::zeros({count, height, width}, at::kByte),
                         .crowd = at::empty({count}, at::kBool),
                         .area = at::empty({count}, at::kFloat)};
  auto* boxes = result.boxes.mutable_data_ptr<float>();
  auto* labels = result.labels.mutable_data_ptr<std::int64_t>();
  auto* masks = result.masks.mutable_data_ptr<std::uint8_t>();
  auto* crowd = result.crowd.mutable_data_ptr<bool>();
  auto* area = result.area.mutable_data_ptr<float>();
  for (const auto& [target, number, box, area_factor] : objects) {
    boxes = std::copy(box.begin(), box.end(), boxes);
    *labels++ = target->labels.const_data_ptr<std::int64_t>()[number];
    *crowd++ = target->crowd.const_data_ptr<bool>()[number];
    *area++ = target->area.const_data_ptr<float>()[number] * area_factor;
    const MaskRows mask = mask_of(*target, number);
    const std::int64_t rows = std::min(height, target->masks.size(1));
    for (std::int64_t y = 0; y < rows; ++y) std::copy_n(mask.row(y), std::min(width, mask.width), masks + y * width);
    masks += height * width;
  }
  return result;
}

}  // namespace

void paste_objects(const DetectionSample& source, SampleRandom& random, DetectionSample& onto) {
  if (!source.target.masks.defined() || !onto.target.masks.defined()) {
    throw UsageError("Objects are pasted by their masks, but these samples have none. Read them with masks.");
  }
  const auto from = contiguous(source);
  onto = contiguous(onto);
  const std::int64_t height = onto.image.size(1);
  const std::int64_t width = onto.image.size(2);
  const std::int64_t shared_height = std::min(height, from.image.size(1));
  const std::int64_t shared_width = std::min(width, from.image.size(2));
  const auto pasted = chosen_objects(from.target, shared_height, shared_width, random);
  if (pasted.empty()) return;

  std::vector<std::uint8_t> covered(static_cast<std::size_t>(height * width));
  for (const PlacedObject& each : pasted) {
    const MaskRows mask = mask_of(from.target, each.number);
    for (std::int64_t y = 0; y < shared_height; ++y) {
      auto* row = covered.data() + y * width;
      for (std::int64_t x = 0; x < shared_width; ++x) row[x] |= mask.row(y)[x];
    }
  }
  auto* pixels = onto.image.mutable_data_ptr<float>();
  const auto* others = from.image.const_data_ptr<float>();
  for (std::int64_t channel = 0; channel < onto.image.size(0); ++channel) {
    for (std::int64_t y = 0; y < shared_height; ++y) {
      auto* row = pixels + (channel * height + y) * width;
      const auto* other = others + (channel * from.image.size(1) + y) * from.image.size(2);
      for (std::int64_t x = 0; x < shared_width; ++x) {
        if (covered[static_cast<std::size_t>(y * width + x)] != 0) row[x] = other[x];
      }
    }
  }

  std::vector<PlacedObject> objects;
  auto* masks = onto.target.masks.mutable_data_ptr<std::uint8_t>();
  for (std::int64_t k = 0; k < onto.target.labels.size(0); ++k) {
    auto* const mask = masks + k * height * width;
    const auto rest = look_at({mask, width}, height, [&](std::int64_t x, std::int64_t y) {
      const auto pixel = y * width + x;
      if (covered[static_cast<std::size_t>(pixel)] != 0) mask[pixel] = 0;
      return mask[pixel] != 0;
    });
    if (rest.after == rest.before) {  // also without a pixel from the beginning
      objects.push_back({&onto.target, k, box_of(onto.target, k), 1});
    } else if (rest.after > 0) {
      objects.push_back({&onto.target, k, rest.box, rest.share()});
    }
  }
  objects.insert(objects.end(), pasted.begin(), pasted.end());
  auto target = joined(objects, height, width);
  target.image_id = onto.target.image_id;
  onto.target = target;
}

}  // namespace libtrain::data
