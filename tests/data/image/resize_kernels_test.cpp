#include <libtrain/data/image/detail/resize_kernels.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/numeric/detail/float16.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::uint8_t kUntouched = 0xA5;

std::vector<std::uint8_t> random_bytes(std::size_t count) {
  std::mt19937 engine(3);
  std::vector<std::uint8_t> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(engine() >> 24);
  return bytes;
}

TEST(Transpose, TurnsRowsOfAnyLengthIntoColumns) {
  for (std::size_t count = 1; count <= 50; ++count) {
    // As long as the rows are, so that a sanitizer sees what is read beyond them.
    std::vector<std::vector<std::uint8_t>> content;
    std::array<const std::uint8_t*, kLanes> rows{};
    const auto bytes = random_bytes(count * kLanes);
    for (std::size_t r = 0; r < kLanes; ++r) {
      content.emplace_back(bytes.begin() + static_cast<std::ptrdiff_t>(r * count),
                           bytes.begin() + static_cast<std::ptrdiff_t>((r + 1) * count));
    }
    for (std::size_t r = 0; r < kLanes; ++r) rows[r] = content[r].data();
    const std::size_t padded = (count + kTransposeTile - 1) / kTransposeTile * kTransposeTile;
    std::vector<std::uint8_t> columns(padded * kLanes, kUntouched);
    rows_to_columns(rows, count, columns.data());
    for (std::size_t j = 0; j < padded; ++j) {
      for (std::size_t r = 0; r < kLanes; ++r) {
        ASSERT_EQ(columns[j * kLanes + r], j < count ? content[r][j] : 0) << count << " " << j << " " << r;
      }
    }
  }
}

TEST(Transpose, TurnsColumnsThatLieApartIntoRowsOfAnyLength) {
  for (const std::size_t stride : {kLanes, 3 * kLanes}) {
    for (std::size_t count = 1; count <= 50; ++count) {
      const auto columns = random_bytes((count - 1) * stride + kLanes);
      const std::size_t row_stride = count + 2;
      std::vector<std::uint8_t> rows(row_stride * kLanes, kUntouched);
      columns_to_rows(columns.data(), stride, count, rows.data(), row_stride);
      for (std::size_t r = 0; r < kLanes; ++r) {
        for (std::size_t j = 0; j < row_stride; ++j) {
          ASSERT_EQ(rows[r * row_stride + j], j < count ? columns[j * stride + r] : kUntouched)
              << stride << " " << count << " " << j << " " << r;
        }
      }
    }
  }
}

// All bytes, and then so many that every length of the rest after whole vectors occurs.
std::uint16_t half_bits(float value) {
  return static_cast<std::uint16_t>(libtrain::detail::narrow<libtrain::detail::Float16>(value));
}

TEST(Normalize, RoundsToFloat16AsTheDefinitionDoes) {
  constexpr std::size_t kMax = 256 + 17;
  for (const float mean : {0.0F, 123.675F, 255.0F}) {
    for (const float factor : {1.0F, 1 / 58.395F, -1e-6F, 300.0F}) {
      for (std::size_t count = 256; count <= kMax; ++count) {
        std::vector<std::uint8_t> from(count);
        for (std::size_t i = 0; i < count; ++i) from[i] = static_cast<std::uint8_t>(i);
        const std::vector<float> means(count, mean);
        const std::vector<float> factors(count, factor);
        std::vector<std::uint16_t> to(count + 1, 0xABCD);
        normalize(from.data(), means.data(), factors.data(), count, PixelType::float16, to.data());
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(to[i], half_bits((static_cast<float>(from[i]) - mean) * factor))
              << i << " " << mean << " " << factor;
        }
        ASSERT_EQ(to[count], 0xABCD);
      }
    }
  }
}

}  // namespace

}  // namespace libtrain::data::detail
