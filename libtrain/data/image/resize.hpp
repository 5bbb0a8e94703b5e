#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <libtrain/data/image/image.hpp>
#include <libtrain/data/image/resize_weights.hpp>

namespace libtrain::data {

/// A rectangle of a picture in pixels, between pixels as well: [left, right) by [top, bottom).
struct ResizeBox {
  float left = 0;
  float top = 0;
  float right = 0;
  float bottom = 0;
};

/// Where pixels lie in the picture that they are a rectangle of, and the size of that picture.
struct SourcePart {
  int x = 0;  ///< of the first pixel
  int y = 0;
  int width = 0;  ///< of the whole picture
  int height = 0;
};

enum class Flip { none, horizontal };

struct ResizeOptions {
  /// What becomes the resized picture; the whole source where it is left out. Pixels around the box take part in the
  /// filter, as in Pillow's Image.resize(box=...). To cut them off first, as torchvision's RandomResizedCrop does, give
  /// a view of the crop as the source.
  std::optional<ResizeBox> box = std::nullopt;

  /// The source is only this part of the picture to resize, to which the box refers. It must have all pixels that the
  /// target needs (see needed_source()); the result is then that of resizing the whole picture, exactly.
  std::optional<SourcePart> part = std::nullopt;

  /// The size of the resized picture, of which the target is the part from (x, y) on; 0: the target's own size.
  int width = 0;
  int height = 0;
  int x = 0;
  int y = 0;

  Flip flip = Flip::none;  ///< mirrors what goes to the target
  Normalization normalization = {};
};

/// The rectangle of a picture of `width` x `height` pixels that a target of this size needs, with all that the filter
/// reaches; SourcePart plays no role. Throws UsageError as Resizer::resize() does. Any thread may call it.
Crop needed_source(int width, int height, const ResizeOptions& options, int target_width, int target_height);

/// Resizes pictures as Pillow's Image.resize(..., BILINEAR) does, antialiased, in 8-bit fixed point with the horizontal
/// pass first; then mirrors, normalises, casts and stores them, row by row while they are in the cache.
///
/// Before it is normalised the result equals Pillow's bit by bit in versions before 13; Pillow 13 begins with the
/// vertical pass where that is cheaper, which changes some values by 1. Only what the target needs is computed. Memory
/// is kept for the next picture, so that pictures of sizes seen before allocate nothing. Used by one thread at a time.
class Resizer {
 public:
  /// Fills `target`, whose channels are those of `source`. For uint8 the bytes are stored as they are, for other types
  /// normalised in float32, then rounded to nearest, ties to even.
  /// Throws UsageError for an empty picture, a box or a target that reaches out of its picture, a part without some
  /// pixel that is needed, or a standard deviation that is not positive.
  void resize(const ImageView& source, const ResizeOptions& options, const PixelTarget& target);

 private:
  void reserve(const PixelTarget& target);
  void prepare_normalization(const Normalization& normalization, const PixelTarget& target);
  void resample_rows(const ImageView& source, Flip flip, const PixelTarget& target, std::size_t first);
  void write_row(std::size_t y, const PixelTarget& target);

  detail::ResizeWeights horizontal_;
  detail::ResizeWeights vertical_;
  std::size_t row_elements_ = 0;         // of the target: width * channels
  std::vector<std::uint8_t> columns_;    // some rows of the source, transposed
  std::vector<std::uint8_t> resampled_;  // the same after the horizontal pass, still transposed
  std::vector<std::uint8_t> rows_;       // all rows that are needed after the horizontal pass, in the target's layout
  std::vector<std::uint8_t> line_;       // one row after the vertical pass
  std::vector<float> mean_;              // by element of a row, in units of the bytes
  std::vector<float> factor_;
};

}  // namespace libtrain::data
