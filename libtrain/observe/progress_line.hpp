#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace libtrain {

/// A number shown with the progress, as `0.312 loss` or `1234 images/s`.
struct ProgressFigure {
  double value = 0.0;
  std::string name;
};

/// The contents of a progress line.
struct ProgressState {
  int epoch = 0;           ///< counted from 1
  int epochs = 0;          ///< 0: unknown
  std::int64_t step = 0;   ///< steps of this epoch that are done
  std::int64_t steps = 0;  ///< steps in this epoch; 0: unknown, then there is no bar and no eta
  double eta_s = -1.0;     ///< seconds until the end of the epoch; negative: unknown
  std::vector<ProgressFigure> figures;
};

/// `epoch 3/20 [#####.....] 45/90 0.312 loss 1234 images/s eta 0:12`, at most `columns` wide: the bar shrinks first,
/// then disappears, then the end of the line is cut off.
std::string progress_bar_line(const ProgressState& state, int columns);

/// The same without a bar, for files.
std::string progress_plain_line(const ProgressState& state);

/// `epoch 3/20 done: 90 steps in 0:24, 0.301 loss, 1240 images/s`.
std::string progress_end_line(const ProgressState& state, double elapsed_s);

/// `0:07`, `12:34`, `1:02:03`: rounded to seconds.
std::string format_duration(double seconds);

/// Three significant digits, with an exponent only if needed: `0.312`, `45.1`, `1234`, `1e-05`.
std::string format_figure(double value);

}  // namespace libtrain
