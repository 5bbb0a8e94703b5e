#include <libtrain/data/image/normalize.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/numeric/float16.hpp>

namespace libtrain::data::detail {
namespace {

// All bytes, and then as many as make every length of the rest behind whole vectors.
std::uint16_t half_bits(float value) {
  return static_cast<std::uint16_t>(libtrain::detail::narrow<libtrain::detail::Float16>(value));
}

TEST(Normalize, RoundsToFloat16AsTheDefinitionDoes) {
  constexpr std::size_t kMost = 256 + 17;
  for (const float mean : {0.0F, 123.675F, 255.0F}) {
    for (const float factor : {1.0F, 1 / 58.395F, -1e-6F, 300.0F}) {
      for (std::size_t count = 256; count <= kMost; ++count) {
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
