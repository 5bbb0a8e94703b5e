#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <libtrain/data/image/image.hpp>

namespace libtrain::data {

/// A rectangle of an image in pixels, which may start and end within pixels: [left, right) by [top, bottom).
struct ResizeBox {
  float left = 0;
  float top = 0;
  float right = 0;
  float bottom = 0;
};

/// The position of a rectangle in an image, and the size of that image.
struct SourcePart {
  int x = 0;  ///< of the rectangle's first pixel
  int y = 0;
  int width = 0;  ///< of the whole image
  int height = 0;
};

enum class Flip { none, horizontal };

struct ResizeOptions {
  /// The part of the source that is resized; by default the whole source. The filter reads pixels around the box, as in
  /// Pillow's Image.resize(box=...). To exclude them, as torchvision's RandomResizedCrop does, pass a view of the crop
  /// as the source.
  std::optional<ResizeBox> box = std::nullopt;

  /// The source is only this part of the image to resize, and the box refers to the whole image. The part must have all
  /// pixels that the target needs (see needed_source()); the result is then exactly that of resizing the whole image.
  std::optional<SourcePart> part = std::nullopt;

  /// The size of the resized image, of which the target is the part that starts at (x, y); 0: the target's size.
  int width = 0;
  int height = 0;
  int x = 0;
  int y = 0;

  Flip flip = Flip::none;  ///< mirrors the target
  Normalization normalization = {};
};

/// The rectangle of an image of `width` x `height` pixels that a target of this size needs, including all pixels that
/// the filter reads. Ignores ResizeOptions::part. Throws UsageError as Resizer::resize() does. Any thread may call it.
Crop needed_source(int width, int height, const ResizeOptions& options, int target_width, int target_height);

namespace detail {

/// One direction of a resize: `output_size` elements from the interval [begin, end) of `source_size` elements, of which
/// `outputs` elements from number `first_output` on are computed.
struct ResizeAxis {
  int source_size = 0;
  float begin = 0;
  float end = 0;
  int output_size = 0;
  int first_output = 0;
  int outputs = 0;
};

/// The weights of Pillow's antialiased bilinear filter: a triangle that reaches max(scale, 1) source elements to either
/// side of an output's centre, cut off at the ends of the source (not of the interval), normalised to a sum of one, and
/// rounded to multiples of 2^-22. The formulas, and the order of their operations, are those of precompute_coeffs and
/// normalize_coeffs_8bpc in Pillow's src/libImaging/Resample.c: the integers are the same.
///
/// Keeps its memory between calls. Used by one thread at a time.
class ResizeWeights {
 public:
  /// Requires 0 <= begin < end <= source_size, and outputs that are among the output_size.
  void compute(const ResizeAxis& axis);

  std::size_t outputs() const { return begins_.size(); }

  /// The first source element that is needed, and how many are needed from there on.
  int first() const { return first_; }
  std::size_t source_count() const { return source_count_; }

  /// Weights per output, the same number for all (see padded_taps); unused ones are zero.
  std::size_t taps() const { return taps_; }

  /// For each output, the source element of its first weight, counted from first().
  const std::size_t* begins() const { return begins_.data(); }

  /// [outputs()][taps()], in units of 2^-22.
  const std::int32_t* weights() const { return weights_.data(); }

  /// The number of source elements that are read from first() on: more than source_count() if the last weights are
  /// zero.
  std::size_t extent() const { return begins_.back() + taps_; }

 private:
  void compute_output(std::size_t output, double center, double inverse_scale, std::size_t begin, std::size_t count);

  int first_ = 0;
  std::size_t source_count_ = 0;
  std::size_t taps_ = 0;
  std::vector<std::size_t> begins_;
  std::vector<std::size_t> counts_;
  std::vector<std::int32_t> weights_;
  std::vector<double> values_;  // of one output, before rounding
};

/// How a byte v of one channel is normalised: (v - mean) * factor, in float32 and in this order.
struct ByteNormalization {
  float mean = 0;  ///< in units of the bytes
  float factor = 1;
};

/// Throws UsageError for a mean or a standard deviation that is not finite, and for one that is not positive.
ByteNormalization byte_normalization(const Normalization& normalization, std::size_t channel);

}  // namespace detail

/// Resizes images as Pillow's Image.resize(..., BILINEAR) does, antialiased, in 8-bit fixed point with the horizontal
/// pass first; then mirrors, normalises, casts and stores them, row by row while they are in the cache.
///
/// Before it is normalised the result is bit-identical to that of Pillow before version 13; Pillow 13 starts with the
/// vertical pass if that is cheaper, which changes some values by 1. Only what the target needs is computed. Memory is
/// reused, so that images of sizes seen before allocate nothing. Used by one thread at a time.
class Resizer {
 public:
  /// Fills `target`, which must have as many channels as `source`. For uint8 the bytes are not normalised; for other
  /// types they are normalised in float32, then rounded to nearest, ties to even. Throws UsageError for an empty image,
  /// a box or a target that is not inside its image, a part that lacks a pixel that is needed, and a standard deviation
  /// that is not positive.
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
  std::vector<std::uint8_t> rows_;       // all needed rows after the horizontal pass, in the target's layout
  std::vector<std::uint8_t> line_;       // one row after the vertical pass
  std::vector<float> mean_;              // for each element of a row, in units of the bytes
  std::vector<float> factor_;
};

}  // namespace libtrain::data
