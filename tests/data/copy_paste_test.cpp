#include <libtrain/data/copy_paste.hpp>

#include <array>
#include <cstdint>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

namespace libtrain::data {
namespace {

// Left, top, right and bottom.
using Rectangle = std::array<std::int64_t, 4>;

// An image of one value, with rectangles of the label's value.
DetectionSample picture(std::int64_t height, std::int64_t width, float value, const std::vector<Rectangle>& objects,
                        std::int64_t first_label, bool crowd = false) {
  const auto count = static_cast<std::int64_t>(objects.size());
  DetectionSample sample{.image = at::full({3, height, width}, value),
                         .target = {.boxes = at::zeros({count, 4}),
                                    .labels = at::zeros({count}, at::kLong),
                                    .masks = at::zeros({count, height, width}, at::kByte),
                                    .crowd = at::full({count}, crowd, at::kBool),
                                    .area = at::zeros({count}),
                                    .image_id = 7}};
  for (std::int64_t k = 0; k < count; ++k) {
    const auto& [left, top, right, bottom] = objects[static_cast<std::size_t>(k)];
    const auto label = first_label + k;
    sample.image.slice(1, top, bottom).slice(2, left, right).fill_(static_cast<float>(label));
    sample.target.masks[k].slice(0, top, bottom).slice(1, left, right).fill_(1);
    sample.target.boxes[k].copy_(at::tensor(
        {static_cast<float>(left), static_cast<float>(top), static_cast<float>(right), static_cast<float>(bottom)}));
    sample.target.labels[k] = label;
    sample.target.area[k] = 10.0F * static_cast<float>((right - left) * (bottom - top));
  }
  return sample;
}

Rectangle box_of(const DetectionSample& sample, std::int64_t number) {
  Rectangle box{};
  for (std::int64_t side = 0; side < 4; ++side) {
    box[static_cast<std::size_t>(side)] = sample.target.boxes[number][side].item<std::int64_t>();
  }
  return box;
}

std::vector<std::int64_t> labels_of(const DetectionSample& sample) {
  const auto& labels = sample.target.labels;
  return {labels.const_data_ptr<std::int64_t>(), labels.const_data_ptr<std::int64_t>() + labels.size(0)};
}

// Pastes with random numbers with which all objects are chosen.
void paste_all(const DetectionSample& from, DetectionSample& onto) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    SampleRandom draws(seed, 0, 0);
    bool all = true;
    for (std::int64_t k = 0; k < from.target.labels.size(0); ++k) all = draws.uniform() < 0.5 && all;
    if (!all) continue;
    SampleRandom random(seed, 0, 0);
    return paste_objects(from, random, onto);
  }
  FAIL() << "no seed chooses all objects";
}

TEST(PasteObjects, ShrinksWhatIsCoveredInPart) {
  auto onto = picture(20, 30, 0, {{2, 2, 12, 10}, {20, 12, 26, 18}}, 1);
  paste_all(picture(20, 30, 9, {{8, 0, 16, 20}}, 3), onto);
  EXPECT_EQ(labels_of(onto), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(box_of(onto, 0), (Rectangle{2, 2, 8, 10}));
  EXPECT_EQ(box_of(onto, 1), (Rectangle{20, 12, 26, 18}));
  EXPECT_EQ(box_of(onto, 2), (Rectangle{8, 0, 16, 20}));
  EXPECT_FLOAT_EQ(onto.target.area[0].item<float>(), 10 * 48);  // 48 of 80 pixels
  EXPECT_FLOAT_EQ(onto.target.area[1].item<float>(), 10 * 36);
  EXPECT_EQ(onto.target.image_id, 7);
  // Each mask has the pixels of its value, and the pixels around the pasted object stay.
  for (std::int64_t k = 0; k < 3; ++k) {
    EXPECT_TRUE(onto.target.masks[k].eq(1).equal(onto.image[0].eq(static_cast<double>(k + 1)))) << k;
  }
  EXPECT_EQ(onto.image.eq(9).sum().item<int>(), 0);
}

TEST(PasteObjects, LeavesOutWhatIsCoveredCompletely) {
  auto onto = picture(20, 20, 0, {{5, 5, 9, 9}}, 1);
  paste_all(picture(20, 20, 9, {{4, 4, 12, 12}}, 2), onto);
  EXPECT_EQ(labels_of(onto), std::vector<std::int64_t>{2});
}

TEST(PasteObjects, CutsOffWhatIsOutsideOfASmallerImage) {
  auto onto = picture(10, 12, 0, {}, 1);
  paste_all(picture(30, 30, 9, {{6, 4, 20, 8}, {15, 15, 20, 20}}, 1), onto);
  EXPECT_EQ(labels_of(onto), std::vector<std::int64_t>{1});  // the other is outside
  EXPECT_EQ(box_of(onto, 0), (Rectangle{6, 4, 12, 8}));
  EXPECT_EQ(onto.target.masks.sizes(), (at::IntArrayRef{1, 10, 12}));
  EXPECT_EQ(onto.target.masks.sum().item<int>(), 24);

  auto larger = picture(40, 50, 0, {}, 1);
  paste_all(picture(30, 30, 9, {{25, 20, 30, 30}}, 1), larger);
  EXPECT_EQ(larger.target.masks.sum().item<int>(), 50);
  EXPECT_TRUE(larger.target.masks[0].eq(1).equal(larger.image[0].eq(1)));
}

TEST(PasteObjects, ChoosesAboutHalfAndNoCrowds) {
  int pasted = 0;
  const auto from = picture(20, 20, 9, {{0, 0, 4, 4}, {6, 6, 10, 10}}, 1);
  const auto crowds = picture(20, 20, 9, {{0, 0, 4, 4}}, 1, /*crowd=*/true);
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    auto onto = picture(20, 20, 0, {}, 1);
    SampleRandom random(seed, 1, 0);
    paste_objects(crowds, random, onto);
    EXPECT_EQ(onto.target.labels.size(0), 0);
    paste_objects(from, random, onto);
    pasted += static_cast<int>(onto.target.labels.size(0));
  }
  EXPECT_NEAR(pasted, 1000, 5 * 22.4);
}

// The box reaches into the image, and the mask does not, as that of a round object.
TEST(PasteObjects, LeavesOutWhatHasNoPixelInside) {
  auto from = picture(20, 30, 9, {{8, 0, 28, 20}, {2, 2, 6, 6}}, 3);
  from.target.masks[0].slice(1, 0, 14).fill_(0);
  auto onto = picture(20, 12, 0, {{0, 12, 4, 16}}, 1);
  const auto untouched = onto.image.clone();
  paste_all(from, onto);
  EXPECT_EQ(labels_of(onto), (std::vector<std::int64_t>{1, 4}));
  EXPECT_TRUE(onto.image.slice(2, 8).equal(untouched.slice(2, 8)));

  // What is cut has the box and the share of the area of the pixels that are left.
  from.target.masks[0].slice(1, 10, 14).slice(0, 5, 10).fill_(1);  // 10 of 300 pixels are inside
  onto = picture(20, 12, 0, {}, 1);
  paste_all(from, onto);
  EXPECT_EQ(box_of(onto, 0), (Rectangle{10, 5, 12, 10}));
  EXPECT_FLOAT_EQ(onto.target.area[0].item<float>(), 10 * 400 * 10 / 300.0F);
}

TEST(PasteObjects, TakesTensorsOfAnyStrides) {
  const auto from = picture(20, 30, 9, {{8, 0, 16, 20}}, 3);
  auto expected = picture(20, 24, 0, {{2, 2, 12, 10}}, 1);
  auto interleaved = picture(20, 30, 0, {{2, 2, 12, 10}}, 1);
  interleaved.image = interleaved.image.permute({1, 2, 0}).contiguous().permute({2, 0, 1}).slice(2, 0, 24);
  interleaved.target.masks = interleaved.target.masks.slice(2, 0, 24);
  paste_all(from, expected);
  paste_all(from, interleaved);
  EXPECT_TRUE(interleaved.image.equal(expected.image));
  EXPECT_TRUE(interleaved.target.masks.equal(expected.target.masks));
  EXPECT_TRUE(interleaved.target.boxes.equal(expected.target.boxes));
  interleaved.target.masks = at::zeros({2, 20, 23}, at::kByte);
  SampleRandom random(1, 0, 0);
  EXPECT_THROW(paste_objects(from, random, interleaved), UsageError);
}

TEST(PasteObjects, NeedsMasks) {
  auto onto = picture(20, 20, 0, {{5, 5, 9, 9}}, 1);
  auto from = onto;
  from.target.masks = at::Tensor();
  SampleRandom random(0, 0, 0);
  EXPECT_THROW(paste_objects(from, random, onto), UsageError);
}

}  // namespace
}  // namespace libtrain::data
