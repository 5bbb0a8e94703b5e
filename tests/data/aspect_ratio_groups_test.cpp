#include <libtrain/data/aspect_ratio_groups.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Widths and heights of COCO's images, of images at and next to a bound, and extreme ones: 635 / 504 is 2^(1/3) but for
// 4e-7.
const std::vector<ImageExtent> kExtents{{640, 480}, {480, 640}, {640, 427}, {500, 375}, {375, 500}, {640, 640},
                                        {640, 320}, {320, 640}, {641, 320}, {320, 641}, {640, 360}, {612, 612},
                                        {333, 500}, {1, 1000},  {1000, 1},  {635, 504}, {504, 635}};

// Golden values: tests/data/make_group_golden.py, with the bins and the search of torchvision's references.
TEST(AspectRatioGroups, AreThoseOfTorchvision) {
  using Groups = std::vector<std::uint8_t>;
  EXPECT_EQ(aspect_ratio_groups(kExtents, 0), (Groups{0, 1, 0, 0, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 0, 1}));
  EXPECT_EQ(aspect_ratio_groups(kExtents, 1), (Groups{1, 2, 1, 1, 2, 2, 1, 3, 0, 3, 1, 2, 2, 3, 0, 1, 2}));
  EXPECT_EQ(aspect_ratio_groups(kExtents, 2), (Groups{2, 3, 1, 2, 3, 3, 1, 5, 0, 5, 1, 3, 4, 5, 0, 2, 3}));
  EXPECT_EQ(aspect_ratio_groups(kExtents), (Groups{2, 5, 2, 2, 5, 4, 1, 7, 0, 7, 1, 4, 5, 7, 0, 3, 4}));
  EXPECT_EQ(aspect_ratio_groups(kExtents, 127),
            (Groups{75, 180, 53, 75, 180, 128, 1, 255, 0, 255, 22, 128, 202, 255, 0, 85, 170}));
  EXPECT_EQ(aspect_ratio_groups({}), Groups{});
}

std::string refusal(std::vector<ImageExtent> images, int factor) {
  return message_of<UsageError>([&] { aspect_ratio_groups(images, factor); });
}

TEST(AspectRatioGroups, RefuseWhatHasNone) {
  EXPECT_THAT(refusal(kExtents, -1), AllOf(HasSubstr("is -1"), HasSubstr("0 to 127")));
  EXPECT_THAT(refusal(kExtents, 128), HasSubstr("is 128"));
  EXPECT_THAT(refusal({{4, 3}, {4, 0}}, 3), HasSubstr("Image 1 is 4 x 0 pixels"));
  EXPECT_THAT(refusal({{-4, 3}}, 3), HasSubstr("Image 0 is -4 x 3 pixels"));
}

}  // namespace
}  // namespace libtrain::data
