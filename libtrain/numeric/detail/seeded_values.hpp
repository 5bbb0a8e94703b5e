#pragma once

#include <cstdint>
#include <string_view>

#include <libtrain/base/splitmix.hpp>

namespace libtrain::detail {

/// A different seed for each name and count (FNV-1a over the name).
constexpr std::uint64_t seed_of(std::uint64_t seed, std::string_view name, std::uint64_t count) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return mix_bits(mix_bits(mix_bits(seed + kGoldenRatioBits) + hash) + count);
}

/// The index-th of a sequence of numbers uniform in [-1, 1), the same on every platform and therefore on every rank.
constexpr double uniform_value(std::uint64_t seed, std::uint64_t index) {
  const auto bits = mix_bits(mix_bits(seed + kGoldenRatioBits) + kGoldenRatioBits * (index + 1));
  return static_cast<double>(bits >> 11) * 0x1.0p-52 - 1.0;
}

}  // namespace libtrain::detail
