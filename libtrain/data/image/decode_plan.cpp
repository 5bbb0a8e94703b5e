#include <libtrain/data/image/decode_plan.hpp>

#include <initializer_list>

#include <libtrain/data/image/decode_options.hpp>

namespace libtrain::data::detail {

namespace {

// How far behind `origin`, a pixel of the scaled picture, the place of the file lies in it. Exact up to 2^24: a
// division by a power of two.
float scaled_place(int place, int denominator, int origin) {
  return static_cast<float>(static_cast<double>(place) / denominator - origin);
}

}  // namespace

int choose_scale(int width, int height, int wanted_width, int wanted_height) {
  for (const int denominator : {8, 4, 2}) {
    if (width / denominator >= wanted_width && height / denominator >= wanted_height) return denominator;
  }
  return 1;
}

DecodePlan plan_crop(const Crop& crop, int scale_denominator) {
  const int right = crop.x + crop.width;
  const int bottom = crop.y + crop.height;
  DecodePlan plan{.scale_denominator = scale_denominator};
  plan.crop.x = crop.x / scale_denominator;
  plan.crop.y = crop.y / scale_denominator;
  plan.crop.width = scaled(right, scale_denominator) - plan.crop.x;
  plan.crop.height = scaled(bottom, scale_denominator) - plan.crop.y;
  plan.resize.box = ResizeBox{.left = scaled_place(crop.x, scale_denominator, plan.crop.x),
                              .top = scaled_place(crop.y, scale_denominator, plan.crop.y),
                              .right = scaled_place(right, scale_denominator, plan.crop.x),
                              .bottom = scaled_place(bottom, scale_denominator, plan.crop.y)};
  return plan;
}

DecodePlan plan_resized_crop(int width, int height, const ResizedCrop& resized, int scale_denominator) {
  const int scaled_width = scaled(width, scale_denominator);
  const int scaled_height = scaled(height, scale_denominator);
  DecodePlan plan{.scale_denominator = scale_denominator};
  plan.resize = {.box = ResizeBox{.right = scaled_place(width, scale_denominator, 0),
                                  .bottom = scaled_place(height, scale_denominator, 0)},
                 .width = resized.width,
                 .height = resized.height,
                 .x = resized.crop.x,
                 .y = resized.crop.y};
  plan.crop = needed_source(scaled_width, scaled_height, plan.resize, resized.crop.width, resized.crop.height);
  plan.resize.part = SourcePart{.x = plan.crop.x, .y = plan.crop.y, .width = scaled_width, .height = scaled_height};
  return plan;
}

}  // namespace libtrain::data::detail
