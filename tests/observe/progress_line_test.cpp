#include <libtrain/observe/progress_line.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

namespace libtrain {
namespace {

ProgressState halfway() {
  return {.epoch = 3,
          .epochs = 20,
          .step = 45,
          .steps = 90,
          .eta_s = 12.0,
          .figures = {{0.312, "loss"}, {1234.0, "images/s"}}};
}

TEST(ProgressLine, ShowsBarFiguresAndEta) {
  EXPECT_EQ(progress_bar_line(halfway(), 63), "epoch 3/20 [#####.....] 45/90 0.312 loss 1234 images/s eta 0:12");
}

TEST(ProgressLine, TheBarTakesTheRoomThereIs) {
  EXPECT_EQ(progress_bar_line(halfway(), 60), "epoch 3/20 [###....] 45/90 0.312 loss 1234 images/s eta 0:12");
  const auto wide = progress_bar_line(halfway(), 500);
  EXPECT_NE(wide.find("[###############...............]"), std::string::npos) << wide;
}

TEST(ProgressLine, NeverExceedsTheColumns) {
  for (int columns = -1; columns <= 120; ++columns) {
    EXPECT_LE(progress_bar_line(halfway(), columns).size(), static_cast<std::size_t>(std::max(columns, 0)));
  }
  EXPECT_EQ(progress_bar_line(halfway(), 16), "epoch 3/20 45/90");
}

TEST(ProgressLine, DoesNotCutACharacterInTwo) {
  const ProgressState state{.epoch = 1, .step = 2, .figures = {{3.0, "\xc2\xb5s"}}};
  EXPECT_EQ(progress_bar_line(state, 18), "epoch 1 2 steps 3 ");
  EXPECT_EQ(progress_bar_line(state, 19), "epoch 1 2 steps 3 \xc2\xb5");
}

TEST(ProgressLine, HasNoBarWhereTheLengthIsUnknown) {
  EXPECT_EQ(progress_bar_line({.epoch = 1, .step = 7, .eta_s = 3.0, .figures = {}}, 80), "epoch 1 7 steps");
}

TEST(ProgressLine, StaysWithinTheBarPastItsEnd) {
  const auto line = progress_bar_line({.epoch = 1, .step = 12, .steps = 10, .figures = {}}, 80);
  EXPECT_EQ(line, "epoch 1 [" + std::string(30, '#') + "] 12/10");
}

TEST(ProgressLine, PlainLinesHaveNoBar) {
  EXPECT_EQ(progress_plain_line(halfway()), "epoch 3/20 45/90 0.312 loss 1234 images/s eta 0:12");
  EXPECT_EQ(progress_end_line(halfway(), 24.0), "epoch 3/20 done: 45 steps in 0:24, 0.312 loss, 1234 images/s");
}

TEST(FormatDuration, GrowsHoursWhenNeeded) {
  EXPECT_EQ(format_duration(0.0), "0:00");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(754.0), "12:34");
  EXPECT_EQ(format_duration(3723.0), "1:02:03");
  EXPECT_EQ(format_duration(360000.0), "100:00:00");
  EXPECT_EQ(format_duration(-1.0), "0:00");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::quiet_NaN()), "?");
}

TEST(FormatFigure, KeepsThreeDigits) {
  EXPECT_EQ(format_figure(0.31249), "0.312");
  EXPECT_EQ(format_figure(45.06), "45.1");
  EXPECT_EQ(format_figure(999.4), "999");
  EXPECT_EQ(format_figure(999.6), "1000");
  EXPECT_EQ(format_figure(1234.4), "1234");
  EXPECT_EQ(format_figure(-52345.0), "-52345");
  EXPECT_EQ(format_figure(0.00001), "1e-05");
  EXPECT_EQ(format_figure(2.5e12), "2.5e+12");
  EXPECT_EQ(format_figure(std::numeric_limits<double>::quiet_NaN()), "nan");
}

}  // namespace
}  // namespace libtrain
